// Options of `lumen train`: those of recipe keys from the rows of model/recipe/recipe_keys.def, and the others.
#include "cli/settings/rows.h"
#include "model/recipe/recipe_keys.h"

namespace lumen::cli {
namespace {

#define LUMEN_KEY(section, key, value, effect, names, help, ...) \
  Setting{names, "train", help}.for_key(#section "." #key) __VA_ARGS__,
#define LUMEN_KEY_FLAG(section, key, value, names, help, ...) \
  Setting{names, "train", help}.for_key(#section "." #key, value) __VA_ARGS__,
constexpr Setting kRows[] = {
    Setting{"-r,--recipe", "train",
            "Recipe by name, or a .toml file; of several, separated by commas, later ones override earlier ones; flags "
            "override recipes"}
        .reading(Reads::file, "NAME|FILE"),
    Setting{"-m,--model,--model_name_or_path", "train",
            "Start from this model, in any format, instead of random weights"}
        .reading(Reads::model, "FILE")
        .as_variable("LUMEN_TRAIN_MODEL"),
    Setting{"-o,--out,--output,--output_dir,--output-dir", "train",
            "Folder for checkpoints, metrics and the model; by default lumen-out, or the folder of the resumed run"}
        .writing(Writes::folder_of_run, "DIR"),
    Setting{"--overwrite,--overwrite_output_dir", "train",
            "Replace the model and delete the checkpoints of another run in --out"}
        .under("Checkpoints")
        .no_variable(),
    Setting{"--resume,--resume_from_checkpoint,--resume-from-checkpoint", "train",
            "Continue from a checkpoint, with its own recipe; without a value, from the latest one in --out"}
        .reading(Reads::resumed, "[DIR]")
        .no_variable(),
    Setting{"--allow-changed-data", "train", "Resume although data files, or a teacher, have changed"}.under("Data"),
    Setting{"--allow-changed-recipe", "train",
            "Resume with rates, steps, batches or data order that differ from the checkpoint's"}
        .under("Checkpoints"),
    Setting{"--objective-setting", "train", "A number of the objective, such as label_smoothing=0.1; repeatable"}
        .under("Objective")
        .takes("NAME=NUMBER")
        .one_each(),
    Setting{"--beta", "train", "The same as --objective-setting beta=.."}.under("Objective"),
    Setting{"--report_to,--report-to", "train", "tensorboard: the same as --tensorboard; none: nothing"}
        .under("Evaluation")
        .one_of("tensorboard none"),
    Setting{"--bf16", "train", "The same as --precision bf16"}.under("Number types"),
    Setting{"--format,--qat", "train",
            "Quantization-aware training: quantize every matrix to this format in the forward pass"}
        .under("Training inside the rounding")
        .as_variable("LUMEN_TRAIN_FORMAT"),
    Setting{"--ranks,--nproc-per-node,--nproc_per_node,--num-processes,--num_processes", "train",
            "Processes on this host that share each batch, one for each GPU with --device cuda; torchrun, srun and "
            "mpirun start processes themselves"}
        .under("Several processes")
        .from(1, 256)
        .takes("N"),
    Setting{"--print-config", "train", "Print the resolved recipe and stop"}.no_variable(),
    Setting{"--plan", "train", "Print the memory of each kind and the time that the run needs; train and write nothing"}
        .no_variable(),
    Setting{"--explain", "train", "Print the kernels of one step and their times at the end"}.under("Output"),
#include "model/recipe/recipe_keys.def"
};
#undef LUMEN_KEY_FLAG
#undef LUMEN_KEY

// The rows that have an option; those of keys with the bounds and names of the key.
std::vector<Setting> rows_with_options() {
  std::vector<Setting> out;
  for (Setting row : kRows) {
    if (*row.names == '\0') continue;
    if (*row.key != '\0' && *row.key_value == '\0') {
      const model::recipe::RecipeKey& key = model::recipe::recipe_key(row.key);
      if (key.is_number()) row.least = key.least, row.most = key.most;
      row.choices = key.choices.c_str();
    }
    out.push_back(row);
  }
  return out;
}

}  // namespace

std::span<const Setting> training_rows() {
  static const std::vector<Setting> rows = rows_with_options();
  return rows;
}

}  // namespace lumen::cli
