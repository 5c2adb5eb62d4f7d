#include "hostile/trial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "cli/run_app.h"

namespace lumen::hostile {
namespace {

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void limit(int what, uint64_t to) {
  const rlimit both{to, to};
  setrlimit(what, &both);
}

void put_on(int descriptor, const std::filesystem::path& file) {
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (opened < 0 || dup2(opened, descriptor) < 0) std::_Exit(126);
  close(opened);
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const std::filesystem::path& folder,
                         const Budget& budget) {
  limit(RLIMIT_CPU, static_cast<uint64_t>(budget.seconds));
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, uint64_t{256} << 20);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) std::_Exit(126);
  put_on(STDOUT_FILENO, folder / "out.txt");
  put_on(STDERR_FILENO, folder / "error.txt");
  std::vector<const char*> words = {"lumen"};
  for (const std::string& a : arguments) words.push_back(a.c_str());
  const int code = cli::run_app(static_cast<int>(words.size()), words.data());
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(code);
}

// Control characters that a terminal obeys; ends of lines, tabs and returns of a progress line are not.
bool has_control(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f) return true;
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) return true;
  }
  return false;
}

}  // namespace

Ending start(const std::vector<std::string>& arguments, const std::filesystem::path& folder, const Budget& budget) {
  const pid_t child = fork();
  if (child == 0) become(arguments, folder, budget);
  Ending ending;
  int status = 0;
  rusage used{};
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + std::chrono::seconds(4 * budget.seconds);
  for (auto pause = std::chrono::microseconds(500);; pause = std::min(pause * 2, std::chrono::microseconds(20000))) {
    const pid_t done = wait4(child, &status, WNOHANG, &used);
    if (done == child) break;
    if (std::chrono::steady_clock::now() > end && !ending.late) {
      ending.late = true;
      kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(pause);
  }
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ending.seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
  ending.memory = int64_t{used.ru_maxrss} << 10;
  ending.out = read(folder / "out.txt");
  ending.error = read(folder / "error.txt");
  return ending;
}

std::string fault(const Ending& e, const std::vector<std::string>& names, bool prints_text, const Budget& budget) {
  if (e.late || e.signal == SIGXCPU || e.signal == SIGKILL) return fmt::format("takes more than {} s", budget.seconds);
  if (e.signal != 0) return fmt::format("ends by signal {}", e.signal);
  if (e.memory > budget.memory) return fmt::format("takes {} MB", e.memory >> 20);
  if (has_control(e.error)) return "prints control characters in a message";
  if (!prints_text && has_control(e.out)) return "prints control characters";
  if (e.code == 0) return "";
  // 2 is for the command line, which was as it should be.
  if (e.code != 1 && (e.code < 3 || e.code > 5)) return fmt::format("ends with code {}", e.code);
  if (e.error.find("error:") == std::string::npos) return fmt::format("ends with code {} and no message", e.code);
  const auto named = [&](const std::string& name) { return e.error.find(name) != std::string::npos; };
  if (std::none_of(names.begin(), names.end(), named)) return "gives a message that names no file";
  return "";
}

}  // namespace lumen::hostile
