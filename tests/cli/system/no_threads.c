// Loaded in front of the libraries (LD_PRELOAD): pthread_create fails as the system fails where no more threads are to be
// had. LUMEN_TEST_THREADS=N: the first N calls succeed, no later one does. "N+": the one behind them alone fails.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef int Create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

static atomic_int calls;

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*), void* context) {
  const char* const given = getenv("LUMEN_TEST_THREADS");
  const int call = atomic_fetch_add(&calls, 1);
  if (given) {
    const int good = atoi(given);
    if (strchr(given, '+') ? call == good : call >= good) return EAGAIN;
  }
  Create* create = NULL;
  *(void**)&create = dlsym(RTLD_NEXT, "pthread_create");
  return create(thread, attributes, work, context);
}
