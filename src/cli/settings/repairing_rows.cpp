// Options of rewrite, correct and recover.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"input", "rewrite", "GGUF file, or a Hugging Face folder"}.reading(Reads::model, "IN").required(),
    Setting{"output", "rewrite", "GGUF file to write, in f32"}.writing(Writes::model_or_input, "OUT").required(),
    Setting{"--rotate", "rewrite", "Spaces to rotate: stream (the residual stream), values (of attention heads)"}
        .takes("SPACES")
        .list(),
    Setting{"--rotation", "rewrite", "Kind of rotation: hadamard (with random signs), or random"}
        .one_of("hadamard random")
        .with_default(),
    Setting{"--online", "rewrite",
            "Weights (a regular expression) whose inputs are rotated while the model runs; only Lumen runs such a file"}
        .takes("REGEX"),
    Setting{"--fold-norms", "rewrite", "Multiply the gains of norms into the weights that follow"},
    Setting{"--untie", "rewrite", "Give the output matrix its own copy of the embedding"},
    Setting{"--outliers", "rewrite",
            "For experiments: multiply this many activation channels by a factor, as in large models: 4:30"}
        .takes("CHANNELS:FACTOR"),
    Setting{"-s,--seed", "rewrite", "Seed of rotations and channels"}.with_default(),
    Setting{"--outtype", "rewrite", "Float format to write instead of f32"}.takes("FORMAT"),
    Setting{"--check-chunks", "rewrite", "Windows of the comparison before and after"}
        .under("Check")
        .from(1, 1 << 20)
        .with_default(),
    Setting{"--no-check", "rewrite", "Do not compare the outputs before and after"}.under("Check"),
    Setting{"--learn-rotation", "rewrite",
            "Train the rotations for weights in this format or mixture, starting from those of --rotate"}
        .under("Learned rotations")
        .takes("FORMAT"),
    Setting{"--activations", "rewrite", "Format of the activations while rotations are trained (kl, tokens)"}
        .under("Learned rotations")
        .takes("FORMAT"),
    Setting{"--loss", "rewrite",
            "Loss to minimize: kl (KL divergence of the quantized model from the model), tokens (cross entropy on a "
            "text), or error (errors of the weights alone, weighted by their inputs)"}
        .under("Learned rotations")
        .one_of("kl tokens error")
        .with_default(),
    Setting{"--steps", "rewrite", "Training steps; 0: 100"}.under("Learned rotations").takes("N").from(0, 1000000),
    Setting{"--rate", "rewrite",
            "Initial learning rate, as a share of the largest possible step; 0: the default of the loss"}
        .under("Learned rotations")
        .takes("RATE")
        .from(0.0, 1.0),
    Setting{"--step-windows", "rewrite", "Windows of the text in each step (kl, tokens)"}
        .under("Learned rotations")
        .takes("N")
        .from(1, 4096)
        .with_default(),
    Setting{"-o,--out,--output", "correct", "NAME.gguf, or a folder in PEFT's format"}
        .writing(Writes::model, "ADAPTER")
        .required(),
    Setting{"-r,--rank", "correct", "Rank of the adapter: columns of B, rows of A"}.from(1, 1 << 16).with_default(),
    Setting{"--method", "correct",
            "eora: minimize the error of each layer's products on a text; svd: minimize the error of each matrix, as "
            "LQER and SVDQuant do"}
        .one_of("eora svd")
        .with_default(),
    Setting{"--damp-percent", "correct",
            "Damping: this part of the inputs' mean square is added to the diagonal; use more for a short text"}
        .under("Text")
        .from(0.0, 1e6)
        .with_default(),
    Setting{"-o,--out,--output", "recover", "GGUF file to write, in the same formats"}
        .writing(Writes::model, "OUT")
        .required(),
    Setting{"--loss", "recover",
            "Loss to minimize: kl (KL divergence from ORIGINAL), or tokens (cross entropy of the text's own tokens)"}
        .one_of("kl tokens")
        .with_default(),
    Setting{"--train", "recover", "Parameters to train: scales (of the formats' groups), norms"}
        .under("Training")
        .takes("WHAT")
        .list()
        .with_default(),
    Setting{"--steps", "recover", "Training steps"}.under("Training").takes("N").from(1, 1000000).with_default(),
    Setting{"--rate", "recover", "Initial learning rate, relative to the size of each parameter"}
        .under("Training")
        .takes("RATE")
        .from(0.0, 1.0)
        .with_default(),
    Setting{"--step-windows", "recover", "Windows of the text in each step"}
        .under("Training")
        .takes("N")
        .from(1, 4096)
        .with_default(),
    Setting{"-s,--seed", "recover", "Seed of the order of windows"}.with_default(),
    Setting{"--work-folder", "recover", "Folder for progress until OUT is written; OUT.work by default"}.writing(
        Writes::folder, "FOLDER"),
    Setting{"--restart", "recover", "Discard the progress of an earlier run in the work folder"}.no_variable(),
    Setting{"original", "correct,recover",
            "The model before quantization: GGUF file, Hugging Face folder, or hf:USER/REPO"}
        .reading(Reads::model, "ORIGINAL")
        .required(),
    Setting{"quantized", "correct,recover", "The same model, quantized"}.reading(Reads::model, "QUANTIZED").required(),
    Setting{"--check", "correct,recover",
            "Held-out text on which the divergence from the original is measured; the default is the end of the "
            "built-in text"}
        .under("Check")
        .reading(Reads::data, "TEXT")
        .as_variable("LUMEN_REPAIR_CHECK"),
    Setting{"--check-chunks", "correct,recover", "Windows of the check; 0: all"}
        .under("Check")
        .from(0)
        .with_default()
        .as_variable("LUMEN_REPAIR_CHECK_CHUNKS"),
    Setting{"--no-check", "correct,recover", "Do not measure the result"}.under("Check").as_variable(
        "LUMEN_REPAIR_NO_CHECK"),
};

}  // namespace

std::span<const Setting> repairing_rows() {
  return kRows;
}

}  // namespace lumen::cli
