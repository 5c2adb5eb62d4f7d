// lumen diffuse: its commands together, and `data`
#include "apps/diffuse/verbs/verbs.h"

#include "apps/images/images.h"
#include "base/file/file.h"
#include "cli/output.h"
#include "cli/settings/declare.h"

namespace lumen::cli {
namespace {

struct DataFlags {
  std::string out;
  int64_t count = 2000, size = 28, seed = 1;
  bool colors = false;
};

int data(const DataFlags& flags) {
  const std::filesystem::path out = flags.out;
  std::filesystem::create_directories(out);
  // What is held out follows from another seed.
  for (const auto& [part, count, seed] : {std::tuple("train", flags.count, flags.seed),
                                          std::tuple("t10k", flags.count / 5 + 1, flags.seed + 1'000'000)}) {
    apps::Images shapes = apps::made_up_images(count, flags.size, seed);
    if (flags.colors) shapes = apps::with_colors(shapes, seed);
    const auto [images, labels] = apps::idx_bytes(shapes);
    // The other kind would be read first, or stay beside.
    std::filesystem::remove(out / fmt::format("{}-images-idx{}-ubyte", part, flags.colors ? 3 : 4));
    write_file_atomic(out / fmt::format("{}-images-idx{}-ubyte", part, flags.colors ? 4 : 3), images);
    write_file_atomic(out / fmt::format("{}-labels-idx1-ubyte", part), labels);
  }
  put(fmt::format("wrote {}: {} images of 4 kinds of shapes, {} x {}{}\n", flags.out, flags.count, flags.size,
                  flags.size, flags.colors ? " x 3" : ""));
  return 0;
}

}  // namespace

void add_diffuse_data(CLI::App& app, Command& command) {
  auto flags = std::make_shared<DataFlags>();
  CLI::App* sub = app.add_subcommand("data", "Write synthetic images, to try the other commands with");
  add_settings(*sub, "--out", flags->out, "--count", flags->count, "--size", flags->size, "--colors", flags->colors,
               "--seed", flags->seed);
  set_action(*sub, command, flags, data);
}

void add_diffuse(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("diffuse", "Train diffusion models for images, and generate images");
  sub->require_subcommand(1);
  for (auto* add : {add_diffuse_data, add_diffuse_train, add_diffuse_sample, add_diffuse_quantize, add_diffuse_study})
    add(*sub, command);
}

}  // namespace lumen::cli
