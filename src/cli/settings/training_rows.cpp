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
            "A recipe by name, or a .toml file (several with commas between: each on top of those before); flags below "
            "override it"}
        .reading(Reads::file)
        .takes("NAME|FILE"),
    Setting{"-m,--model,--model_name_or_path", "train",
            "Start from this model, in any format, instead of fresh weights"}
        .reading(Reads::model)
        .takes("FILE")
        .as_variable("LUMEN_TRAIN_MODEL"),
    Setting{"-o,--out,--output,--output_dir,--output-dir", "train",
            "Folder for checkpoints, metrics and the model; lumen-out, or the folder that is resumed"}
        .writing(Writes::folder_of_run)
        .takes("DIR"),
    Setting{"--overwrite,--overwrite_output_dir", "train",
            "Replace the model and remove the checkpoints that --out holds of another run"}
        .under("Checkpoints")
        .no_variable(),
    Setting{"--resume,--resume_from_checkpoint,--resume-from-checkpoint", "train",
            "Go on from a checkpoint, by its own recipe; without a value, the latest one in --out"}
        .reading(Reads::resumed)
        .takes("[DIR]")
        .no_variable(),
    Setting{"--allow-changed-data", "train", "Resume although data files, or a teacher, are not what they were"}.under(
        "Data"),
    Setting{"--allow-changed-recipe", "train",
            "Resume with other rates, steps, batches or data order than the checkpoint's"}
        .under("Checkpoints"),
    Setting{"--objective-setting", "train",
            "A number of the objective, e.g. label_smoothing=0.1; more than once for several"}
        .under("Objective")
        .takes("NAME=NUMBER")
        .one_each(),
    Setting{"--beta", "train", "--objective-setting beta=.."}.under("Objective"),
    Setting{"--report_to,--report-to", "train", "tensorboard: the same as --tensorboard; none"}
        .under("Evaluation")
        .one_of("tensorboard none"),
    Setting{"--bf16", "train", "The same as --precision bf16"}.under("Number types"),
    Setting{"--format,--qat", "train", "Quantization-aware: round every matrix to this format in the loop"}
        .under("Training inside the rounding")
        .as_variable("LUMEN_TRAIN_FORMAT"),
    Setting{"--ranks,--nproc-per-node,--nproc_per_node,--num-processes,--num_processes", "train",
            "Processes on this host that share each batch, one GPU each with --device cuda; torchrun, srun and mpirun "
            "start ranks themselves"}
        .under("Several processes")
        .from(1, 256)
        .takes("N"),
    Setting{"--print-config", "train", "Print the resolved recipe and stop"}.no_variable(),
    Setting{"--plan", "train", "Print what the run needs: memory by kind, and time; nothing is trained or written"}
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
      const model::RecipeKey& key = model::recipe_key(row.key);
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
