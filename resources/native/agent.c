/* Agent of Spark's JVM (-agentpath): prevents other processes of the same user from reading the JVM's environment and memory.
   The setting of prctl(2) ends with exec, so the process that starts the JVM cannot make it. */

#ifdef __linux__
#include <sys/prctl.h>
#endif

/* Entry point of JVM TI; 0 lets the JVM start. */
int Agent_OnLoad(void *vm, char *options, void *reserved) {
    (void)vm;
    (void)options;
    (void)reserved;
#ifdef __linux__
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
    return 0;
}
