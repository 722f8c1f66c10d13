/* Loaded by Spark's JVM as an agent (-agentpath): no process of the same user can read the JVM's environment and memory.
   prctl(2) lasts until the next exec, so it cannot be set from outside. */

#ifdef __linux__
#include <sys/prctl.h>
#endif

/* JVM TI's entry point; 0 lets the JVM start. */
int Agent_OnLoad(void *vm, char *options, void *reserved) {
    (void)vm;
    (void)options;
    (void)reserved;
#ifdef __linux__
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
    return 0;
}
