// Options of `lumen classify`.
#include "apps/classify/verbs/verbs.h"
#include "apps/image_training/image_training.h"
#include "cli/settings/settings.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"run", "classify study,classify eval", "Folder of a run"}.reading(Reads::run, "RUN").required(),
    Setting{"data", "classify study,classify eval", "Folder of IDX files"}.reading(Reads::folder, "FOLDER").required(),
    Setting{"-o,--out", "classify study", "Folder of the page"}.writing(Writes::folder, "DIR").required(),
    Setting{"--images", "classify study", "Of the t10k part for each seed; 0: all"}.from(0, 100'000'000).with_default(),
    Setting{"--seeds", "classify study", "Choices of images, of those that are calibrated on, and of corruptions"}
        .from(1, 100)
        .with_default(),
    Setting{"--calibrate", "classify study", "Images that ranges are calibrated on"}.from(1, 100'000).with_default(),
    Setting{"--keep-float", "classify study,classify quantize",
            "Products that stay in floats, by the names of their weights"}
        .takes("NAME,..")
        .list(),
    Setting{"--optimizer", "classify train", "sgd (with momentum) or adamw"}
        .under("Training")
        .one_of("sgd adamw")
        .with_default(),
    Setting{"--weight-decay", "classify train", "Of matrices"}.under("Training").from(0, 1),
    Setting{"--clip", "classify train", "Most norm of all gradients; 0: any"}
        .under("Training")
        .from(0, 1e9)
        .with_default(),
    Setting{"--lr,--rate", "classify train", "Learning rate; 0: 0.1 of sgd, 0.001 of adamw"}.from(0, 10),
    Setting{"--constant", "classify train",
            "Keep the rate constant; by default it falls to a tenth at half of the steps and at three quarters"}
        .under("Training"),
    Setting{"--augment", "classify train", "Move and mirror images; those with colours are unless --no-augment"}.under(
        "Training"),
    Setting{"--no-augment", "classify train", "Do not"}.under("Training"),
    Setting{"--test", "classify train", "Images of the t10k part that are tried at the end; 0: all"}.from(0,
                                                                                                          100'000'000),
    Setting{"--images", "classify eval", "So many; 0: all"}.from(0, 100'000'000),
    Setting{"--float", "classify eval", "In floats alone"},
    Setting{"run", "classify quantize", "Folder of a run"}.reading(Reads::resumed, "RUN").required(),
    Setting{"data", "classify quantize", "Folder of IDX files, whose training part is used"}
        .reading(Reads::folder, "FOLDER")
        .required(),
    Setting{"--ranges", "classify quantize", "Of a layer's results: static, dynamic (the true ones) or estimate"}
        .with_default(),
    Setting{"--per", "classify quantize", "tensor or channel"}.with_default(),
    Setting{"--gamma", "classify quantize", "Use every G-th position in both directions"}
        .under("Ranges")
        .from(1, 64)
        .with_default(),
    Setting{"--whole-alpha", "classify quantize", "Deviations in whole numbers, as published"}.under("Ranges"),
    Setting{"--depthwise-static", "classify quantize", "Depthwise products take calibrated ranges"}.under("Ranges"),
    Setting{"--fixed-norms", "classify quantize", "Products after a normalization take calibrated ranges"}.under(
        "Ranges"),
    Setting{"--images", "classify quantize", "Images that are calibrated on"}.from(1, 100'000).with_default(),
    Setting{"--seed", "classify quantize", "Which they are"}.from(0, 0xffffffff).with_default(),
    Setting{"run", "classify export", "Folder of a run that was quantized"}.reading(Reads::run, "RUN").required(),
    Setting{"-o,--out", "classify export", "Folder to write kernels.o and model.c to"}
        .writing(Writes::folder, "DIR")
        .required(),
    Setting{"--target", "classify export", "A processor that lumen doctor lists, or cortex-m4, cortex-m7"}
        .with_default(),
};

}  // namespace

std::span<const Setting> classify_rows() {
  static const std::vector<Setting> rows =
      with_image_training("classify train", "Family of models/*.lum that classifies images", kRows);
  return rows;
}

}  // namespace lumen::cli
