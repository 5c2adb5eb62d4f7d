// lumen diffuse: its commands together, and `data`
#include "apps/diffuse/verbs/verbs.h"

#include "apps/images/images.h"
#include "base/file/file.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/paths/paths.h"

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
  sub->add_option("-o,--out", flags->out, "Folder to write")
      ->check(writes(Writes::folder))
      ->required()
      ->type_name("FOLDER");
  sub->add_option("--count", flags->count, "Images")->check(whole(1, 1'000'000))->capture_default_str();
  sub->add_option("--size", flags->size, "Pixels of a side")->check(whole(4, 1024))->capture_default_str();
  sub->add_flag("--colors", flags->colors, "Three channels, drawn colors and noise, as files of idx4");
  sub->add_option("--seed", flags->seed, "What they follow from")->check(whole(0, 0xffffffff))->capture_default_str();
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, &command] { command.action = [flags] { return data(*flags); }; });
}

void add_diffuse(CLI::App& app, Command& command) {
  CLI::App* sub = app.add_subcommand("diffuse", "Train diffusion models for images, and generate images");
  sub->require_subcommand(1);
  for (auto* add : {add_diffuse_data, add_diffuse_train, add_diffuse_sample, add_diffuse_quantize, add_diffuse_study})
    add(*sub, command);
}

}  // namespace lumen::cli
