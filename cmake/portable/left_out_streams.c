// The stream of messages of the picture libraries, whose archives cannot reach that of the C library (lumen_external).
#include <stdio.h>

__attribute__((visibility("hidden"))) FILE* lumen_standard_error;

__attribute__((constructor)) static void open_standard_error(void) {
  lumen_standard_error = stderr;
}
