#include "cli/command.h"

int main(int argc, char** argv) {
  return lumen::cli::run_app(argc, argv);
}
