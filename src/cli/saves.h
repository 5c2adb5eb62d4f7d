// What a command saves when it is asked to stop. Ctrl-C, SIGTERM and SIGHUP are answered at once: a line says so, and
// who has called catch_interrupts() and is not at its end within a second is ended where it is, as its outputs appear
// whole or not at all. While one of these lives there is more to do than that, and it takes its time. A second signal
// ends every command at once. Proved by tests/cli/system/interrupt_check.py.
#pragma once

namespace lumen::cli {

class SavesWhenStopped {
 public:
  SavesWhenStopped();
  SavesWhenStopped(const SavesWhenStopped&) = delete;
  SavesWhenStopped& operator=(const SavesWhenStopped&) = delete;
  ~SavesWhenStopped();
};

}  // namespace lumen::cli
