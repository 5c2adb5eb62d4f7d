// needs: none. What cannot be written is an error; what comes out of files never speaks to the terminal; nothing is
// left behind by what fails.
#include "cli/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "outcome.h"

namespace lumen::cli {
namespace {

// Standard output goes to a descriptor for a while.
class Redirected {
 public:
  explicit Redirected(int fd) : before_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    ::dup2(fd, STDOUT_FILENO);
    ::close(fd);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() {
    std::fflush(stdout);
    std::clearerr(stdout);
    ::dup2(before_, STDOUT_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

int run_words(std::vector<const char*> words, std::string* error) {
  words.insert(words.begin(), "lumen");
  testing::internal::CaptureStderr();
  const int code = run_app(static_cast<int>(words.size()), words.data());
  *error = testing::internal::GetCapturedStderr();
  return code;
}

class Output : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "lumen-output-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::filesystem::path folder_;
};

TEST_F(Output, AFullDeviceIsAnError) {
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"--help"},
                                             {"--version"},
                                             {"format", "list"},
                                             {"format", "show", "q8_0"},
                                             {"doctor", "--quick", "--json"},
                                             {"train", "--shape", "char", "--print-config"},
                                             {"compile", "llama", "--shape", "tiny", "--symbols", "T=4"}}) {
    std::string error;
    int code = 0;
    {
      const Redirected full(::open("/dev/full", O_WRONLY));
      code = run_words(words, &error);
    }
    EXPECT_EQ(code, 1) << words[0];
    EXPECT_TRUE(contains(error, "cannot write to standard output: No space left on device")) << words[0] << error;
  }
}

TEST_F(Output, AReaderThatWentEndsItQuietly) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  std::string error;
  int code = 0;
  {
    const Redirected closed(ends[1]);
    code = run_words({"format", "list"}, &error);
  }
  std::signal(SIGPIPE, before);
  EXPECT_EQ(code, 1);
  EXPECT_EQ(error, "");
  EXPECT_EQ(lumen({"--version"}).code, 0) << "and the next command works";
}

// What a terminal gets to see.
TEST_F(Output, NothingForeignReachesATerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const int inside = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(inside, 0);
  {
    const Redirected to(::dup(inside));
    put_text("\x1b]0;title\a text\n");
    put("\xc2\x9b"
        "2J report\n");
    EXPECT_THROW(put_bytes("\x7f"
                           "ELF"),
                 Error);
  }
  // A terminal hands on what it has: all of it may take several reads.
  const std::string wanted = "\\x1b]0;title\\x07 text\r\n\\u009b2J report\r\n";
  std::string seen;
  for (pollfd ready{terminal, POLLIN, 0}; ::poll(&ready, 1, seen.size() < wanted.size() ? 5000 : 0) > 0;) {
    char buffer[256];
    const ssize_t n = ::read(terminal, buffer, sizeof buffer);
    if (n <= 0) break;
    seen.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_EQ(seen, wanted);
  ::close(inside);
  ::close(terminal);
}

TEST_F(Output, TextsGoAsTheyAreIntoPipes) {
  testing::internal::CaptureStdout();
  put_text("\x1b[1m\r");
  put_bytes(std::string("\0\xff", 2));
  put("\x1b[1m\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), std::string("\x1b[1m\r\0\xff", 7) + "\\x1b[1m\n");
}

// A GGUF file whose names are commands for a terminal.
TEST_F(Output, HostileNamesAreShown) {
  std::string file = "GGUF";
  const auto number = [&](auto n) { file.append(reinterpret_cast<const char*>(&n), sizeof n); };
  const auto text = [&](const std::string& t) {
    number(static_cast<uint64_t>(t.size()));
    file += t;
  };
  number(uint32_t{3});
  number(uint64_t{1});
  number(uint64_t{1});
  text("key\x1b[31m\nsecond line");
  number(uint32_t{8});
  text("value\x1b]0;title\a\xc2\x9b");
  text("tensor\x1b[2J\r");
  number(uint32_t{1});
  number(uint64_t{1});
  number(uint32_t{0});
  number(uint64_t{0});
  file.resize((file.size() + 31) / 32 * 32 + 32);
  std::ofstream(path("evil\x1b[7m.gguf"), std::ios::binary) << file;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"inspect", path("evil\x1b[7m.gguf")},
                                             {"run", path("evil\x1b[7m.gguf"), "-p", "a"},
                                             {"export", path("evil\x1b[7m.gguf"), path("out")},
                                             {"tokenize", "-m", path("absent\x1b[7m"), "a"}}) {
    const Outcome o = lumen(words);
    const std::string all = o.out + o.error;
    for (const char c : all) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << words[0] << all;
    EXPECT_FALSE(contains(all, "\xc2\x9b")) << all;
    EXPECT_TRUE(contains(all, "\\x1b[")) << words[0] << all;
    if (words[0] == "inspect") {
      EXPECT_EQ(o.code, 0) << o.error;
      EXPECT_TRUE(contains(o.out, "key\\x1b[31m\\nsecond line")) << o.out;
    }
  }
}

// A mistake that was noticed where no file is known any more still says which files it is about.
TEST_F(Output, ErrorsNameTheFiles) {
  std::ofstream(path("broken.toml")) << "[schedule]\nsteps = \"many\"\n";
  const Outcome toml = lumen({"train", "--recipe", path("broken.toml"), "--print-config"});
  EXPECT_EQ(toml.code, 1);
  EXPECT_TRUE(contains(toml.error, "broken.toml")) << toml.error;
  EXPECT_FALSE(contains(toml.error, "  files:")) << toml.error;
  const std::string tokenizer = std::string(LUMEN_SOURCE_DIR) + "/tests/fuzz/corpus/tokenizer/small.json";
  const Outcome ids = lumen({"tokenize", "-m", tokenizer, "--decode", "2000000000"});
  EXPECT_NE(ids.code, 0);
  EXPECT_TRUE(contains(ids.error, "small.json")) << ids.error;
}

// Outputs are tried before inputs are read, and what fails leaves nothing behind.
TEST_F(Output, WhatCannotBeWrittenIsSaidFirst) {
  std::ofstream(path("text")) << "some words\n";
  std::filesystem::create_directory(path("sub"));
  const size_t before = entries();
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"quantize", path("absent.gguf"), path("no/out.gguf"), "q8_0"},
           {"quantize", path("absent.gguf"), path("sub"), "q8_0"},
           {"quantize", path("absent.gguf"), "/dev/null", "q8_0"},
           {"export", path("absent.gguf"), path("no/out.gguf")},
           {"export", path("absent.gguf"), path("text")},
           {"export", path("absent.gguf"), path("text/out")},
           {"perplexity", "-m", path("absent.gguf"), "--record-logits", path("no/out")},
           {"tokenize", "--train", path("absent"), "-o", path("no/out.json")},
           {"bench", "--shape", "tiny", "--write", path("no/out.gguf"), "--type", "q8_0"},
           {"compile", "llama", "--shape", "tiny", "-o", path("no/out")},
           {"demo", "-o", path("text")}}) {
    const Outcome o = lumen(words);
    EXPECT_EQ(o.code, 1) << words[0] << o.error;
    EXPECT_FALSE(contains(o.error, "absent")) << words[0] << o.error;
    EXPECT_TRUE(contains(o.error, "cannot")) << words[0] << o.error;
  }
  EXPECT_EQ(entries(), before);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"export", path("absent.gguf"), path("new/folder")},
                                             {"export", path("absent.gguf"), path("out.gguf")},
                                             {"quantize", path("absent.gguf"), path("out.gguf"), "q8_0"}}) {
    EXPECT_EQ(lumen(words).code, 1);
    EXPECT_EQ(entries(), before) << words[0];
  }
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(Output, CompileWritesTheObjectBesideTheReport) {
  const Outcome o = lumen({"compile", "llama", "--shape", "tiny", "--symbols", "B=1,T=4", "--target", "sm_90a",
                           "--emit", "llvm", "--check", "-o", path("out.ll")});
  ASSERT_EQ(o.code, 0) << o.error;
  EXPECT_FALSE(o.out.empty());
  std::ifstream file(path("out.ll"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(contains(text, "define")) << text.substr(0, 200);
  EXPECT_FALSE(contains(o.out, "define void"));
}

}  // namespace
}  // namespace lumen::cli
