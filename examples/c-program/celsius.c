/* {"station":"oslo","celsius":-10.00} for each line `oslo 14.0`; other lines give nothing (mode: filter). */
#include <stdio.h>

int main(void) {
    char line[256], station[64];
    double fahrenheit;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "%63[a-z] %lf", station, &fahrenheit) == 2) {
            printf("{\"station\":\"%s\",\"celsius\":%.2f}\n", station, (fahrenheit - 32) / 1.8);
        }
    }
    /* Exit status 0 promises that every row was written: a full disk or a closed pipe must not look like success. */
    return ferror(stdin) || fflush(stdout) != 0 || ferror(stdout);
}
