// The fuzz targets (*_fuzz.cpp) without libFuzzer: each reads mutated copies of its saved corpus, by the thousand, in
// one process and in an order that a seed names. What crashes, aborts, throws anything but an Error, or takes longer or
// more memory than its budget is left in a file and ends the program.
//   usage: hostile_readers [--count N] [--seed S] [--target NAME] [--finds FOLDER] [--replay FILE]
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/file/file.h"

using Reader = int (*)(const uint8_t*, size_t);

#define FUZZ_TARGET(name) extern "C" int fuzz_##name(const uint8_t*, size_t);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

// For targets that bring a mutator of their own; here nobody calls it.
extern "C" size_t LLVMFuzzerMutate(uint8_t*, size_t size, size_t) {
  return size;
}

namespace {

namespace fs = std::filesystem;

constexpr int kSeconds = 20;                  // for one input
constexpr rlim_t kMemory = rlim_t{4} << 30;   // of addresses
constexpr size_t kLargest = size_t{1} << 17;  // of an input
constexpr std::string_view kDigits = "0123456789";

struct Target {
  const char* name;
  Reader read;
};
const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
#define FUZZ_TARGET(name) {#name, fuzz_##name},
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
  };
  return all;
}

// What is being read, for the handler of signals.
const uint8_t* current = nullptr;
size_t current_size = 0;
char find_path[4096];

extern "C" void keep_find(int number) {
  const int fd = ::open(find_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  size_t done = 0;
  while (fd >= 0 && done < current_size) {
    const ssize_t n = ::write(fd, current + done, current_size - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  constexpr char kSaid[] = "hostile_readers: a find, by a signal (14: too slow); the input is in ";
  (void)!::write(2, kSaid, sizeof kSaid - 1);
  (void)!::write(2, find_path, std::strlen(find_path));
  (void)!::write(2, "\n", 1);
  ::_exit(128 + number);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : chance_(seed) {}

  std::string mutated(const std::vector<std::string>& corpus) {
    std::string text = corpus[below(corpus.size())];
    for (uint64_t n = 1 + below(6); n > 0; --n) change(text, corpus);
    if (text.size() > kLargest) text.resize(kLargest);
    return text;
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(chance_() % n); }

  void change(std::string& text, const std::vector<std::string>& corpus) {
    // Most of what matters stands near the beginning.
    const size_t reach = below(3) == 0 ? text.size() : std::min<size_t>(text.size(), 512);
    const size_t at = below(reach);
    switch (below(10)) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!text.empty()) text[at] = static_cast<char>(chance_());
        break;
      case 2: {  // a number of 1, 2, 4 or 8 bytes
        constexpr uint64_t kNumbers[] = {
            0,          1,          2,          31,        32,         0x7f,       0x80,
            0xff,       0x100,      0x7fff,     0xffff,    0x10000,    0x7fffffff, 0x80000000,
            0xffffffff, 1ULL << 32, 1ULL << 40, INT64_MAX, 1ULL << 63, UINT64_MAX, UINT64_MAX - 1};
        const uint64_t number = kNumbers[below(std::size(kNumbers))];
        const size_t width = size_t{1} << below(4);
        if (text.size() >= width) std::memcpy(text.data() + below(text.size() - width + 1), &number, width);
        break;
      }
      case 3:
        text.resize(below(text.size() + 1));
        break;
      case 4:
        text.erase(at, 1 + below(16));
        break;
      case 5:
        text.insert(at, std::string(1 + below(16), static_cast<char>(chance_())));
        break;
      case 6: {  // a part of this one or another
        const std::string& other = corpus[below(corpus.size())];
        const size_t from = below(other.size());
        text.insert(at, other.substr(from, 1 + below(256)));
        break;
      }
      case 7: {
        if (text.empty()) break;
        const size_t from = below(text.size()), size = std::min<size_t>(1 + below(64), text.size() - from);
        const std::string part = text.substr(from, size);
        text.replace(std::min(at, text.size()), std::min(size, text.size() - std::min(at, text.size())), part);
        break;
      }
      case 8: {  // digits of a text
        const size_t digit = text.find_first_of(kDigits, at);
        if (digit == std::string::npos) break;
        const size_t end = std::min(text.find_first_not_of(kDigits, digit), text.size());
        constexpr const char* kWords[] = {"0",
                                          "-1",
                                          "1",
                                          "7",
                                          "65536",
                                          "2147483648",
                                          "9223372036854775807",
                                          "18446744073709551616",
                                          "1e308",
                                          "1e999",
                                          "0.5",
                                          "-0.0",
                                          "99999999999999999999"};
        text.replace(digit, end - digit, kWords[below(std::size(kWords))]);
        break;
      }
      default:
        if (!text.empty()) std::swap(text[at], text[below(text.size())]);
    }
  }

  std::mt19937_64 chance_;
};

std::vector<std::string> corpus_of(const std::string& target) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(LUMEN_SOURCE_DIR) / "tests/fuzz/corpus" / target))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const fs::path& file : files) texts.push_back(lumen::read_file(file));
  return texts;
}

void read_one(const Target& target, const std::string& text, const fs::path& finds, const std::string& label) {
  const std::string path = (finds / (std::string(target.name) + "-" + label)).string();
  std::snprintf(find_path, sizeof find_path, "%s", path.c_str());
  current = reinterpret_cast<const uint8_t*>(text.data());
  current_size = text.size();
  ::alarm(kSeconds);
  target.read(current, current_size);
  ::alarm(0);
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t count = 10'000, seed = 1;
  std::string only, replay;
  fs::path finds = ".";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--count") count = std::stoull(value);
    if (flag == "--seed") seed = std::stoull(value);
    if (flag == "--target") only = value;
    if (flag == "--finds") finds = value;
    if (flag == "--replay") replay = value;
  }
  const rlimit memory{kMemory, kMemory};
  ::setrlimit(RLIMIT_AS, &memory);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, SIGSYS}) std::signal(number, keep_find);

  std::vector<const Target*> chosen;
  for (const Target& t : targets())
    if (only.empty() || only == t.name) chosen.push_back(&t);
  if (chosen.empty()) {
    std::fprintf(stderr, "hostile_readers: no target is called %s\n", only.c_str());
    return 2;
  }
  if (!replay.empty()) {
    for (const Target* t : chosen) read_one(*t, lumen::read_file(replay), finds, "replay");
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  for (const Target* t : chosen) {
    const std::vector<std::string> corpus = corpus_of(t->name);
    for (size_t i = 0; i < corpus.size(); ++i) read_one(*t, corpus[i], finds, "corpus" + std::to_string(i));
    // A stream of its own for each target: the same inputs whichever others are chosen.
    Mutator mutator(seed * 1'000'003 + std::hash<std::string_view>{}(t->name));
    const auto begin = std::chrono::steady_clock::now();
    double longest = 0;
    const uint64_t share = count / chosen.size() + 1;
    for (uint64_t i = 0; i < share; ++i) {
      const auto one = std::chrono::steady_clock::now();
      read_one(*t, mutator.mutated(corpus), finds, std::to_string(seed) + "-" + std::to_string(i));
      longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - one).count());
    }
    std::printf("%-16s %8llu inputs from %zu files, %.1f s, the longest %.3f s\n", t->name,
                static_cast<unsigned long long>(share), corpus.size(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), longest);
    std::fflush(stdout);
  }
  std::printf("no find in %.1f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}
