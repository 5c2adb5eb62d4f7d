// The whole program on thousands of changed files: no signal, no code but those documented, nothing over its budget,
// nothing left behind, no message without a file's name, no control character of a file on a terminal.
//
// Usage: test_hostile [--count N] [--seed S] [--jobs N] [--only TRIAL] [--keep]
//   --only: one trial again, with what it prints and where its files are
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "hostile/corpus.h"
#include "hostile/mutate.h"
#include "hostile/trial.h"

namespace lumen::hostile {
namespace {

namespace fs = std::filesystem;

struct Options {
  uint64_t count = 1200, seed = 1, jobs = 2;
  int64_t only = -1;
};

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << bytes;
}

std::string filled(std::string word, const std::map<std::string, std::string>& names) {
  for (const auto& [name, value] : names)
    if (const size_t at = word.find(name); at != std::string::npos) word.replace(at, name.size(), value);
  return word;
}

// Files below a folder, relative to it.
std::map<std::string, uint64_t> listing(const fs::path& folder) {
  std::map<std::string, uint64_t> out;
  if (!fs::is_directory(folder)) return out;
  for (const auto& at : fs::recursive_directory_iterator(folder))
    out[fs::relative(at.path(), folder)] = at.is_regular_file() ? at.file_size() : 0;
  return out;
}

// One trial below `work`; what is wrong, or "".
std::string trial(const std::vector<Case>& cases, uint64_t seed, uint64_t number, const fs::path& work,
                  const std::string& cache, bool shown) {
  std::mt19937_64 chance(seed * 0x9e3779b97f4a7c15 + number);
  chance.discard(8);
  const Case& one = cases[chance() % cases.size()];
  Words words = one.commands[chance() % one.commands.size()];
  fs::remove_all(work);
  const fs::path out = work / "out", text = work / "text.txt";
  fs::create_directories(out);
  write(text, "First Citizen: Before we proceed any further, hear me speak. 0123456789 and so on.\n");
  fs::path in = work / ("hostile" + one.source.extension().string());
  std::vector<std::string> names = {in.filename()};
  if (one.changed.empty()) {
    write(in, mutated(read(one.source), make_of(one.source.filename()), chance));
  } else {
    in = work / "hostile-folder";
    for (const auto& at : fs::recursive_directory_iterator(one.source)) {
      if (!at.is_regular_file()) continue;
      const fs::path name = fs::relative(at.path(), one.source);
      write(in / name, name == one.changed ? mutated(read(at.path()), make_of(one.changed), chance) : read(at.path()));
    }
    names = {in.filename(), fs::path(one.changed).filename()};
  }
  const bool trains = words.front() == "train";
  for (std::string& word : words) word = filled(word, {{"{in}", in}, {"{out}", out}, {"{text}", text}});
  words.insert(words.end(), {"--cache", cache, "-t", "1", "--no-tune"});
  const auto before = listing(in);
  const Budget budget;
  const Ending ending = start(words, work, budget);
  static const std::map<std::string, int> kPrintText = {{"run", 1}, {"chat", 1}, {"tokenize", 1}};
  std::string wrong = fault(ending, names, kPrintText.contains(words.front()), budget);
  const auto results = listing(out);
  for (const auto& [name, size] : results) {
    if (!wrong.empty()) break;
    if (ending.code != 0)
      wrong = "leaves " + name + " behind an error";
    else if (name.find(".part") != std::string::npos)
      wrong = "leaves " + name;
  }
  if (wrong.empty() && !trains && listing(in) != before) wrong = "changes its input";
  if (shown)
    fmt::print("lumen {}\ncode {}, signal {}, {:.2f} s, {} MB\n{}\n{}\n", fmt::join(words, " "), ending.code,
               ending.signal, ending.seconds, ending.memory >> 20, ending.out, ending.error);
  if (wrong.empty()) return "";
  return fmt::format("{} {} ({}{}{}): {}", words.front(), wrong, one.source.filename().string(),
                     one.changed.empty() ? "" : "/", one.changed, ending.error.substr(0, 300));
}

// The trials number first, first + step, ..: findings go to a file, a line each.
int work_through(const std::vector<Case>& cases, const Options& o, uint64_t first, const fs::path& work,
                 const std::string& cache) {
  std::ofstream found(work.string() + ".found");
  for (uint64_t i = first; i < o.count; i += o.jobs) {
    std::string wrong = trial(cases, o.seed, i, work, cache, false);
    if (wrong.empty()) continue;
    for (char& c : wrong)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    found << i << ": " << wrong << std::endl;
  }
  return 0;
}

int check(const Options& o) {
  const char* base = std::getenv("TMPDIR");
  std::string pattern = std::string(base ? base : "/tmp") + "/lumen-hostile-XXXXXX";
  if (!mkdtemp(pattern.data())) return 1;
  const fs::path work = pattern;
  const std::string cache = work / "cache";
  const std::vector<Case> cases = corpus(LUMEN_SOURCE_DIR, work, cache);
  if (o.only >= 0) {
    const std::string wrong = trial(cases, o.seed, static_cast<uint64_t>(o.only), work / "only", cache, true);
    fmt::print("files are below {}\n{}\n", (work / "only").string(), wrong.empty() ? "nothing is wrong" : wrong);
    return wrong.empty() ? 0 : 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (uint64_t j = 0; j < o.jobs; ++j) {
    const pid_t child = fork();
    if (child == 0) std::_Exit(work_through(cases, o, j, work / fmt::format("job-{}", j), cache));
    children.push_back(child);
  }
  bool whole = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    whole = whole && status == 0;
  }
  uint64_t finds = 0;
  for (uint64_t j = 0; j < o.jobs; ++j) {
    std::ifstream in(work / fmt::format("job-{}.found", j));
    for (std::string line; std::getline(in, line); ++finds) fmt::print("trial {}\n", line);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print("hostile: {} starts on changed files of {} good ones, seed {}, {:.0f} s: {} finds\n", o.count,
             cases.size(), o.seed, seconds, finds);
  fs::remove_all(work);
  if (!whole) fmt::print("a process of this program itself has failed\n");
  return whole && finds == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lumen::hostile

int main(int argc, char** argv) {
  lumen::hostile::Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto value = std::strtoull(argv[i + 1], nullptr, 10);
    if (!std::strcmp(argv[i], "--count"))
      o.count = value;
    else if (!std::strcmp(argv[i], "--seed"))
      o.seed = value;
    else if (!std::strcmp(argv[i], "--jobs"))
      o.jobs = value;
    else if (!std::strcmp(argv[i], "--only"))
      o.only = static_cast<int64_t>(value);
    else
      return 2;
  }
  return lumen::hostile::check(o);
}
