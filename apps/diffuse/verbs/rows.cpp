// Options of `lumen diffuse`.
#include "apps/diffuse/verbs/verbs.h"
#include "apps/image_training/image_training.h"
#include "cli/settings/settings.h"

namespace lumen::cli {
namespace {

constexpr const char* kCalibrated = "diffuse quantize,diffuse study";

constexpr Setting kRows[] = {
    Setting{"--calibrate", kCalibrated, "Number of images generated for calibration"}
        .under("Calibration")
        .from(1, 100'000)
        .with_default(),
    Setting{"--steps", "diffuse quantize,diffuse study,diffuse sample", "Steps from noise to image"}
        .from(1, 100'000)
        .with_default(),
    Setting{"--guidance", kCalibrated, "How far away from what is made without a label"}.from(0, 100).with_default(),
    Setting{"--rows", kCalibrated, "Rows of the inputs of each product that are kept, over all steps"}
        .under("Calibration")
        .from(1, 1 << 20)
        .with_default(),
    Setting{"--rank", kCalibrated, "Rank of the f32 branch next to products, for methods with one; 0: none"}
        .under("Calibration")
        .from(0, 1 << 16)
        .with_default(),
    Setting{"--batch", "diffuse quantize,diffuse study,diffuse sample", "Images at once"}
        .from(1, 1 << 16)
        .with_default(),
    Setting{"run", "diffuse quantize,diffuse sample,diffuse study", "Folder of a run"}
        .reading(Reads::run, "RUN")
        .required(),
    Setting{"-o,--out", "diffuse quantize", "Folder to write, from which images are drawn"}
        .writing(Writes::folder, "QUANTIZED")
        .required(),
    Setting{"--weights", "diffuse quantize", "Format of weights"}.required().takes("FORMAT"),
    Setting{"--activations", "diffuse quantize", "Format of the inputs of products"}.required().takes("FORMAT"),
    Setting{"--method", "diffuse quantize",
            "plain, smoothquant, smooth+, svdquant, segquant-a, segquant-g; or its parts: segments, signs, both"}
        .with_default(),
    Setting{"-o,--out", "diffuse sample", "Picture to write"}.writing(Writes::file, "FILE.png").required(),
    Setting{"--label", "diffuse sample", "What they show, by turns; without it a row of each class"}.list(),
    Setting{"--count", "diffuse sample", "Images; without it as many as columns of each class"}.from(1, 1'000'000),
    Setting{"--columns", "diffuse sample", "Images side by side"}.from(1, 1000).with_default(),
    Setting{"--sampler", "diffuse sample",
            "euler, heun or dpm2 (DPM-Solver++ of second order); ddim for families that predict the noise"}
        .one_of("euler heun dpm2 ddim"),
    Setting{"--guidance", "diffuse sample", "How far away from what is made without a label; 1: not"}
        .from(0, 100)
        .with_default(),
    Setting{"--seed", "diffuse sample", "Of the noise"}.from(0, 0xffffffff).with_default(),
    Setting{"--data", "diffuse study", "Folder of IDX files that it was trained on"}
        .reading(Reads::folder, "FOLDER")
        .required(),
    Setting{"-o,--out", "diffuse study,diffuse data", "Folder to write"}.writing(Writes::folder, "FOLDER").required(),
    Setting{"--in", "diffuse study", "Formats; repeatable"}.required().takes("NAME=WEIGHTS,ACTIVATIONS"),
    Setting{"--methods", "diffuse study", "Methods, see `lumen diffuse quantize`; without it all"}.list(),
    Setting{"--classifier", "diffuse study", "Folder of a classifier's run; without it one is trained"}
        .under("Classifier")
        .reading(Reads::run, "RUN"),
    Setting{"--family", "diffuse study", "Family of the classifier that is trained, with features and logits"}
        .under("Classifier")
        .takes("NAME"),
    Setting{"--shape", "diffuse study", "Size that the family names"}.under("Classifier").takes("NAME"),
    Setting{"--classifier-steps", "diffuse study", "Steps of 64 images that it is trained for"}
        .under("Classifier")
        .from(1, 10'000'000)
        .with_default(),
    Setting{"--images", "diffuse study", "Images of each seed"}.from(2, 1'000'000).with_default(),
    Setting{"--seeds", "diffuse study", "Noises and calibrations"}.from(1, 100).with_default(),
    Setting{"--seed", "diffuse study", "The first of them"}.from(1, 1'000'000'000).with_default(),
    Setting{"--lr,--rate", "diffuse train", "Learning rate"}.from(1e-9, 1).with_default(),
    Setting{"--ema", "diffuse train",
            "Decay of a moving average of the weights, which generates images; 0: use the weights"}
        .under("Training")
        .from(0, 1)
        .with_default(),
    Setting{"--count", "diffuse data", "Images"}.from(1, 1'000'000).with_default(),
    Setting{"--size", "diffuse data", "Pixels of a side"}.from(4, 1024).with_default(),
    Setting{"--colors", "diffuse data", "Three channels, drawn colors and noise, as files of idx4"},
    Setting{"--seed", "diffuse data", "What they follow from"}.from(0, 0xffffffff).with_default(),
};

}  // namespace

std::span<const Setting> diffuse_rows() {
  static const std::vector<Setting> rows =
      with_image_training("diffuse train", "Family of models/*.lum that makes images", kRows);
  return rows;
}

}  // namespace lumen::cli
