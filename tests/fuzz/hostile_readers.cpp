// The fuzz targets (*_fuzz.cpp) without libFuzzer: each reads every file of its saved corpus, and the fixtures of its
// kind, with single bytes put in, taken away and doubled (at all places of small files, at some of large ones), and
// then mutated copies by the thousand, in one process and in an order that a seed names; half of those by the target's
// own mutator. What crashes, aborts, throws anything but an Error, or takes longer or more memory than its budget is
// left in a file and ends the program.
//   usage: hostile_readers [--count N] [--places N] [--seed S] [--target NAME] [--finds FOLDER] [--replay FILE]
//     --places: of each file at which single bytes change
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

using OwnMutator = size_t (*)(uint8_t*, size_t, size_t, unsigned);

#define FUZZ_TARGET(name)                             \
  extern "C" int fuzz_##name(const uint8_t*, size_t); \
  extern "C" [[gnu::weak]] size_t mutate_##name(uint8_t*, size_t, size_t, unsigned);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

// What the targets' own mutators leave to libFuzzer: the mutations below change bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t*, size_t size, size_t) {
  return size;
}

namespace {

namespace fs = std::filesystem;

constexpr int kSeconds = 20;                  // for one input
constexpr rlim_t kMemory = rlim_t{1} << 30;   // that is written to
constexpr size_t kLargest = size_t{1} << 17;  // of an input
constexpr std::string_view kDigits = "0123456789";
// Bytes that mean something to one format or another.
constexpr std::string_view kTelling("[]{},\"\n\xff\0", 9);

struct Target {
  const char* name;
  Reader read;
  OwnMutator mutate;
};
const std::vector<Target>& targets() {
  static const std::vector<Target> all = {
#define FUZZ_TARGET(name) {#name, fuzz_##name, mutate_##name},
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

  std::string mutated(const std::vector<std::string>& corpus, OwnMutator own) {
    std::string text = corpus[below(corpus.size())];
    if (own != nullptr && below(2) == 0) {
      const size_t size = text.size();
      text.resize(kLargest);
      text.resize(own(reinterpret_cast<uint8_t*>(text.data()), size, kLargest, static_cast<unsigned>(chance_())));
      return text;
    }
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

// Files of other tests that are of a target's kind; what stands in front of them in its inputs.
struct Fixtures {
  std::string_view target, folder, ending, before;
};
constexpr Fixtures kFixtures[] = {{"rows_parquet", "parquet", ".parquet", ""},
                                  {"rows_csv", "data", ".csv", "c"},
                                  {"rows_json", "data", ".jsonl", "j"},
                                  {"rows_json", "parquet", ".json", "l"},
                                  {"template", "chat", ".jinja", ""},
                                  {"gguf", "tokenizers", ".gguf", ""},
                                  {"safetensors", "embed", ".safetensors", ""},
                                  {"sentencepiece", "tokenizers", ".model", ""},
                                  {"tokenizer", "converted_words", "tokenizer.json", ""},
                                  {"ranks", "ranks", ".tiktoken", ""}};

std::vector<std::string> fixtures_of(const std::string& target) {
  constexpr uint64_t kLongest = uint64_t{1} << 20;
  std::vector<std::string> texts;
  for (const Fixtures& f : kFixtures) {
    if (f.target != target) continue;
    std::vector<fs::path> files;
    const fs::path folder = fs::path(LUMEN_SOURCE_DIR) / "tests/model/fixtures" / f.folder;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file() && entry.path().string().ends_with(f.ending) && entry.file_size() <= kLongest)
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) texts.push_back(std::string(f.before) + lumen::read_file(file));
  }
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

// The file with single bytes put in, taken away and doubled, at `places` of its places or at all where those are fewer.
// How many inputs that were.
uint64_t read_neighbours(const Target& target, const std::string& text, size_t places, const fs::path& finds,
                         const std::string& label) {
  const size_t stride = std::max<size_t>(1, text.size() / std::max<size_t>(1, places));
  uint64_t inputs = 0;
  const auto read = [&](const std::string& changed, size_t at, const char* how) {
    read_one(target, changed, finds, label + "-" + how + std::to_string(at));
    ++inputs;
  };
  // Not the same place of every word of a form whose words are as long as the stride.
  for (size_t at = 0, step = 0; at <= text.size();
       at = std::max(at + 1, ++step * stride + (stride > 1 ? step % stride : 0))) {
    std::string changed = text;
    changed.insert(at, 1, kTelling[0]);
    for (const char c : kTelling) {
      changed[at] = c;
      read(changed, at, "in");
    }
    if (at == text.size()) break;
    changed[at] = text[at];
    read(changed, at, "double");
    changed = text;
    changed.erase(at, 1);
    read(changed, at, "out");
  }
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t count = 10'000, places = 40, seed = 1;
  std::string only, replay;
  fs::path finds = ".";
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--count") count = std::stoull(value);
    if (flag == "--places") places = std::stoull(value);
    if (flag == "--seed") seed = std::stoull(value);
    if (flag == "--target") only = value;
    if (flag == "--finds") finds = value;
    if (flag == "--replay") replay = value;
  }
  const rlimit memory{kMemory, kMemory};
  ::setrlimit(RLIMIT_DATA, &memory);
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
    uint64_t neighbours = 0;
    for (size_t i = 0; i < corpus.size(); ++i)
      neighbours += read_neighbours(*t, corpus[i], places, finds, "corpus" + std::to_string(i));
    const std::vector<std::string> fixtures = fixtures_of(t->name);
    for (size_t i = 0; i < fixtures.size(); ++i) {
      read_one(*t, fixtures[i], finds, "fixture" + std::to_string(i));
      neighbours += read_neighbours(*t, fixtures[i], places / 10, finds, "fixture" + std::to_string(i));
    }
    const double near = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const uint64_t share = count / chosen.size() + 1;
    for (uint64_t i = 0; i < share; ++i) {
      const auto one = std::chrono::steady_clock::now();
      read_one(*t, mutator.mutated(corpus, t->mutate), finds, std::to_string(seed) + "-" + std::to_string(i));
      longest = std::max(longest, std::chrono::duration<double>(std::chrono::steady_clock::now() - one).count());
    }
    std::printf(
        "%-16s %zu files, %llu inputs a byte away from one in %.1f s, %llu mutated ones in %.1f s, the longest %.3f "
        "s\n",
        t->name, corpus.size() + fixtures.size(), static_cast<unsigned long long>(neighbours), near,
        static_cast<unsigned long long>(share),
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() - near, longest);
    std::fflush(stdout);
  }
  std::printf("no find in %.1f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}
