// needs: none. Checkpoints under fire: killed writers, full disks, damaged files.
#include "model/file/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/file/temporary.h"

namespace lumen::model::file {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lumen-checkpoint-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A checkpoint whose every tensor is filled with a pattern of the step, so that mixtures would show.
struct Sample {
  std::vector<uint8_t> blob;
  CheckpointContent content;

  explicit Sample(int64_t step, int64_t width = 256) {
    content.state = {
        step, 42, static_cast<uint64_t>(step) * 3, static_cast<uint64_t>(step) * 5, "lr = 1e-3\n", {{"loss", 2.5}}};
    content.weights = {{"a", {width, 64}, {}}, {"b", {7}, {Scalar::bf16, nullptr}}};
    content.optimizer = {{"a.m", {width, 64}, {}}, {"a.v", {width, 64}, {}}};
    content.files["tokenizer.json"] = "{}";
    content.fetch = [this, step](const TensorSpec& t) {
      blob.assign(static_cast<size_t>(t.blob_bytes()), static_cast<uint8_t>(step));
      return std::span<const uint8_t>(blob);
    };
  }
};

void expect_whole(const fs::path& folder, int64_t step) {
  const Checkpoint c = load_checkpoint(folder, FormatLibrary());
  EXPECT_EQ(c.state.step, step);
  EXPECT_EQ(c.state.seed, 42u);
  EXPECT_EQ(c.state.random_counter, static_cast<uint64_t>(step) * 3);
  EXPECT_EQ(c.state.data_position, static_cast<uint64_t>(step) * 5);
  EXPECT_EQ(c.state.config, "lr = 1e-3\n");
  EXPECT_EQ(c.state.more["loss"], 2.5);
  for (const SafetensorsFile* file : {c.weights.get(), c.optimizer.get()}) {
    ASSERT_EQ(file->tensors().size(), 2u);
    for (const StoredTensor& t : file->tensors()) {
      for (const uint8_t byte : t.data) ASSERT_EQ(byte, static_cast<uint8_t>(step));
    }
  }
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(Checkpoint, ComesBack) {
  const Folder out;
  const Sample s(7);
  const fs::path path = save_checkpoint(out.path() / "run", s.content);
  EXPECT_EQ(path.filename(), "checkpoint-7");
  EXPECT_EQ(latest_checkpoint(out.path() / "run"), path);
  expect_whole(path, 7);
  EXPECT_EQ(entries(out.path() / "run"), 1u);
  EXPECT_FALSE(latest_checkpoint(out.path() / "elsewhere"));
}

TEST(Checkpoint, KeepsAsManyAsAsked) {
  const Folder out;
  for (const int64_t step : {1, 2, 10, 9}) save_checkpoint(out.path(), Sample(step).content, 2);
  const auto all = list_checkpoints(out.path());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].filename(), "checkpoint-9");
  EXPECT_EQ(all[1].filename(), "checkpoint-10");
  EXPECT_EQ(entries(out.path()), 2u);
  save_checkpoint(out.path(), Sample(10, 128).content, 2);  // replaces
  expect_whole(*latest_checkpoint(out.path()), 10);
  EXPECT_EQ(entries(out.path()), 2u);
}

TEST(Checkpoint, DamageIsFound) {
  const Folder out;
  const fs::path path = save_checkpoint(out.path(), Sample(3).content);
  save_checkpoint(out.path(), Sample(2).content);
  std::string bytes = read_file(path / "model.safetensors");
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic(path / "model.safetensors", bytes);
  try {
    load_checkpoint(path, FormatLibrary());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::verify);
    EXPECT_NE(std::string(e.what()).find("model.safetensors"), std::string::npos);
  }
  bytes.pop_back();
  write_file_atomic(path / "model.safetensors", bytes);
  EXPECT_EQ(latest_checkpoint(out.path())->filename(), "checkpoint-2");
  fs::create_directory(out.path() / "checkpoint-9");
  write_file_atomic(out.path() / "checkpoint-9" / "trainer_state.json", "{\"step\": 9");
  write_file_atomic(out.path() / "checkpoint-5", "a file");
  EXPECT_EQ(latest_checkpoint(out.path())->filename(), "checkpoint-2");
}

// Children write checkpoint after checkpoint and are killed at random moments; whatever is listed must be whole.
TEST(Checkpoint, SurvivesKills) {
  const Folder out;
  std::mt19937 random(1);
  int64_t step = 0;
  const auto begin = std::chrono::steady_clock::now();
  save_checkpoint(out.path(), Sample(step, 512).content);
  const auto one =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
  int progressed = 0, idle = 0;
  // A machine that is busy elsewhere gets longer, and more rounds.
  for (int round = 0; round < 30 || (progressed <= 3 && round < 300); ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int64_t s = step;; ++s)
          save_checkpoint(out.path(), Sample(s, 512).content, 2);  // first replaces the newest
      } catch (...) {
      }
      ::_exit(1);
    }
    // Up to six times what one checkpoint takes, and more where nothing came of that; at most half a second.
    const auto longest = static_cast<uint64_t>((6 + 2 * idle) * one);
    ::usleep(static_cast<useconds_t>(std::min<uint64_t>(random() % longest, 500000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed before it was killed";
    const auto all = list_checkpoints(out.path());
    ASSERT_FALSE(all.empty());
    for (const fs::path& path : all) expect_whole(path, std::stoll(path.filename().string().substr(11)));
    const int64_t latest = std::stoll(all.back().filename().string().substr(11));
    ASSERT_GE(latest, step);
    progressed += latest > step;
    idle = latest > step ? 0 : idle + 1;
    step = latest;
  }
  EXPECT_GT(progressed, 3);
  clean_checkpoints(out.path());
  EXPECT_LE(entries(out.path()), 4u);  // two kept, one not yet removed, one half removed under a name of its own
  for (const auto& entry : fs::directory_iterator(out.path())) EXPECT_NE(entry.path().filename().string()[0], '.');
}

// A signal whose handler ends the process, as the program's does, leaves no unfinished folder or file: a fixed number
// of rounds, at moments spread over what one checkpoint takes, with the handler in the writing thread and in another.
TEST(Checkpoint, ASignalLeavesNothingUnfinished) {
  const Folder out;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t s = 0; s < 4; ++s) save_checkpoint(out.path(), Sample(s, 512).content, 2);
  const auto one =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count() / 4;
  for (int round = 0; round < 60; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::signal(SIGTERM, [](int) {
        remove_temporaries();
        ::_exit(9);
      });
      const auto write = [&] {
        for (int64_t s = 4;; s = 4 + (s + 1) % 3) save_checkpoint(out.path(), Sample(s, 512).content, 2);
      };
      if (round % 2 == 0) write();
      std::thread writer([&] {
        sigset_t term;
        sigemptyset(&term);
        sigaddset(&term, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &term, nullptr);
        write();
      });
      writer.join();
    }
    ::usleep(static_cast<useconds_t>(std::min<int64_t>((round + 1) * one / 15, 500'000)));
    ::kill(child, SIGTERM);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) continue;  // before it had a handler
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 9) << status;
    for (const auto& entry : fs::directory_iterator(out.path()))
      ASSERT_NE(entry.path().filename().string()[0], '.') << entry.path() << " after round " << round;
  }
}

// A disk that takes no more: here a limit on the size of files.
TEST(Checkpoint, SurvivesAFullDisk) {
  const Folder out;
  save_checkpoint(out.path(), Sample(1).content);
  for (const rlim_t limit : {100, 5000, 66000, 70000, 131000}) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit r{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &r);
      try {
        save_checkpoint(out.path(), Sample(2).content, 1);
      } catch (const Error&) {
        ::_exit(7);
      } catch (...) {
      }
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 7) << "limit " << limit;
    EXPECT_EQ(entries(out.path()), 1u);
    expect_whole(*latest_checkpoint(out.path()), 1);
  }
}

}  // namespace
}  // namespace lumen::model::file
