#include <malloc.h>

#include "cli/run_app.h"

int main(int argc, char** argv) {
  // Large blocks are mapped one by one, so that a tensor that is freed goes back to the system.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  return lumen::cli::run_app(argc, argv);
}
