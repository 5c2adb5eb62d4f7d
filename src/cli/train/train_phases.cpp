#include "cli/train/train_phases.h"

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/protected.h"
#include "base/file/temporary.h"
#include "base/log.h"
#include "cli/output.h"
#include "model/arch/chat/chat.h"
#include "model/arch/checkpoint/read.h"
#include "model/compress/merge.h"
#include "model/file/own_input.h"
#include "model/recipe/phases.h"
#include "model/recipe/record/provenance.h"
#include "model/recipe/record/record.h"
#include "model/train/adapter_init/adapter_init.h"
#include "model/train/loop/outputs.h"
#include "model/train/loop/saver.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMerged = "merged.gguf";
constexpr const char* kRecipe = "recipe.toml";

fs::path run_folder(const TrainFlags& flags) {
  if (flags.resume_given && !flags.resume.empty()) return flags.resume;
  return flags.out.value_or("lumen-out");
}

// Writes the model merged with the adapter that a phase trained, in float.
void merge_adapter(const Shared& shared, const std::string& base, const fs::path& checkpoint, const fs::path& to) {
  const model::arch::LibraryRef library = shared.library();
  run::Engine engine = shared.engine();
  model::arch::Model model = model::arch::read_model(library, base);
  const std::string trained = model::arch::adapter_chat_template(checkpoint);
  if (model.tokenizer && !trained.empty())
    model::arch::take_chat(model, model::templates::choose_template("", model.tokenizer->with_chat_template(trained)));
  model::arch::Adapter adapter =
      model::recipe::adapter_of(model, model::file::load_checkpoint(checkpoint, library->formats()));
  const std::vector<model::arch::ScaledAdapter> adapters = {{std::move(adapter), 1.0}};
  model::compress::MergeOptions options;
  options.type = "f32";
  model::compress::Merge merge(engine, model, adapters, std::move(options));
  (void)merge.write(to);
}

// Refuses to replace input files that are in the run's folder.
void refuse_protected_in(const fs::path& path) {
  refuse_protected(path, "name another folder with --out");
  std::error_code failure;
  for (const fs::path& inner : list_below(path, failure)) refuse_protected(inner, "name another folder with --out");
}

void copy_tree(const fs::path& from, const fs::path& to, std::error_code& failure) {
  if (!fs::is_directory(from, failure)) {
    fs::copy_file(from, to, failure);
    return;
  }
  fs::create_directory(to, failure);
  for (const fs::path& inner : list_folder(from)) {
    if (failure) return;
    copy_tree(inner, to / inner.filename(), failure);
  }
}

// Copies the output of the last phase into the run's folder: models and folders, without checkpoints.
void publish(const fs::path& from, const fs::path& to) {
  for (const fs::path& entry : list_folder(from)) {
    const std::string name = entry.filename().string();
    if (name.starts_with(".") || name.starts_with("checkpoint-") || name == kRecipe || name == kMerged) continue;
    const fs::path part = to / fmt::format(".{}.part", name);
    remember_temporary(part);
    std::error_code failure;
    refuse_protected_in(to / name);
    remove_tree(part, failure);
    if (!failure) copy_tree(entry, part, failure);
    if (!failure) remove_tree(to / name, failure);
    if (!failure) fs::rename(part, to / name, failure);
    forget_temporary(part);
    if (failure) throw user_error("cannot write {}: {}", (to / name).string(), failure.message());
  }
}

class Phases {
 public:
  Phases(const Shared& shared, const TrainFlags& flags, int (*train)(const Shared&, TrainFlags&))
      : shared_(shared), flags_(flags), train_(train), run_(run_folder(flags)) {
    check_train_flags(flags);
    if (flags.resume_given) {
      state_ = *model::recipe::read_phases(run_);
      whole_ = model::recipe::parse_recipe(state_.recipe, (run_ / "phases.json").string());
      refuse_contradictions();
      take_flags(state_.done);
      state_.recipe = model::recipe::describe(whole_);
    } else {
      whole_ = fresh_recipe(*shared.library(), flags);
      take_flags(0);
      model::recipe::make_absolute(whole_);
      if (!flags.model.empty()) state_.model = fs::absolute(flags.model).lexically_normal().string();
      state_.recipe = model::recipe::describe(whole_);
    }
    model::recipe::check_phases(whole_);
    if (state_.done > whole_.phases.size())
      throw user_error("{}: {} phases of {} are done", (run_ / "phases.json").string(), state_.done,
                       whole_.phases.size());
  }

  int run() {
    if (flags_.print_config) {
      put_text(model::recipe::describe(whole_));
      return 0;
    }
    if (flags_.plan)
      throw usage_error("--plan is for one run, but this recipe has {} phases: plan one with a recipe of its own",
                        whole_.phases.size());
    if (!flags_.resume_given) {
      if (model::recipe::read_phases(run_) && !flags_.overwrite)
        throw Error(Exit::user, fmt::format("'{}' holds another run in phases", run_.string()),
                    "continue it with --resume, name another folder with --out, or add --overwrite");
    }
    ProtectedFiles inputs;
    for (const fs::path& file : state_.model.empty() ? model::file::Paths() : model::file::model_files(state_.model))
      inputs.add(file);
    model::train::refuse_outputs_over_inputs(run_, flags_.resume_given);
    model::recipe::write_phases(run_, state_);
    std::string model = state_.model;
    for (size_t i = 0; i < whole_.phases.size(); ++i) {
      const model::recipe::PhaseBegin begin = model::recipe::phase_begin(whole_.phases[i].begin);
      const fs::path before = i == 0 ? fs::path() : folder(i - 1);
      if (i > 0 && begin == model::recipe::PhaseBegin::model) model = (before / model::recipe::kModelFile).string();
      // A residual base that the phase before has written replaces the model.
      if (i > 0 && begin != model::recipe::PhaseBegin::model)
        if (const auto own = model::train::residual_base(before)) model = own->string();
      if (begin == model::recipe::PhaseBegin::merged) {
        const fs::path merged = before / kMerged;
        std::error_code error;
        if (i >= state_.done && !fs::exists(merged, error)) merge_adapter(shared_, model, handed_over(i - 1), merged);
        model = merged.string();
      }
      if (i < state_.done) continue;
      if (const int code = phase(i, model); code != 0) return code;
      ++state_.done;
      model::recipe::write_phases(run_, state_);
    }
    publish(folder(whole_.phases.size() - 1), run_);
    put(fmt::format("{} phases done: {}\n", whole_.phases.size(), run_.string()));
    return 0;
  }

 private:
  // Refuses options that contradict a resumed run.
  void refuse_contradictions() const {
    const std::string run = run_.string();
    if (flags_.overwrite)
      throw usage_error("--overwrite and --resume contradict each other: '{}' is the run that is resumed", run);
    if (!flags_.recipe.empty())
      throw Error(Exit::usage,
                  fmt::format("--recipe {} and --resume contradict each other: the run in {} has phases and follows "
                              "their recipe",
                              flags_.recipe, run),
                  "--print-config shows it; options with --allow-changed-recipe change the steps that are left");
    std::error_code error;
    if (flags_.out && !fs::equivalent(*flags_.out, run_, error))
      throw usage_error("--out {} and --resume contradict each other: a run in phases stays in its folder, {}",
                        *flags_.out, run);
    const std::string model =
        flags_.model.empty() ? state_.model : fs::absolute(flags_.model).lexically_normal().string();
    if (model != state_.model)
      throw usage_error("--model {} contradicts the run in {}, which began with {}", flags_.model, run,
                        state_.model.empty() ? "fresh weights" : state_.model);
  }

  // Applies options to the phases from `first` on; they override the phases' recipes. A resumed run accepts no new
  // training option unless changes were allowed; a phase that has started compares the options with its checkpoint.
  void take_flags(size_t first) {
    for (size_t i = first; i < whole_.phases.size(); ++i) {
      model::recipe::Phase& phase = whole_.phases[i];
      model::recipe::Recipe base = whole_;
      base.phases.clear();
      const model::recipe::Recipe was = model::recipe::parse_recipe(phase.text, phase.name, base);
      model::recipe::Recipe own = was;
      apply_flags(*shared_.library(), flags_, own);
      if (flags_.resume_given && model::file::latest_checkpoint(folder(i))) continue;
      std::string changes;
      for (const model::recipe::RecipeChange& c : model::recipe::recipe_changes(was, own))
        changes += fmt::format("{}{}: {} here, {} in the run", changes.empty() ? "" : "; ", c.key, c.now, c.was);
      if (flags_.resume_given && !changes.empty()) {
        if (!flags_.changed_recipe)
          throw Error(Exit::usage,
                      fmt::format("phase '{}': the options contradict its recipe: {}", phase.name, changes),
                      "leave out these options (a resumed run follows the stored recipe), or add "
                      "--allow-changed-recipe");
        note(fmt::format("phase '{}' changed: {}", phase.name, changes));
      }
      phase.text = model::recipe::changed_values(base, own);
    }
  }

  fs::path folder(size_t phase) const { return model::recipe::phase_folder(run_, whole_, phase); }

  // The checkpoint with a phase's final state: the best one's weights where its recipe asks for them, as in the files
  // that it wrote.
  fs::path handed_over(size_t phase) const {
    std::error_code error;
    const fs::path best = folder(phase) / model::train::kBestName;
    if (model::recipe::phase_recipe(whole_, phase).load_best && fs::exists(best, error)) return best;
    const auto latest = model::file::latest_checkpoint(folder(phase));
    if (!latest) throw user_error("no checkpoint in {}", folder(phase).string());
    return *latest;
  }

  int phase(size_t i, const std::string& model) {
    const fs::path out = folder(i);
    fs::create_directories(out);
    const model::recipe::Recipe recipe = model::recipe::phase_recipe(whole_, i);
    const fs::path text = out / kRecipe;
    write_file_atomic(text, model::recipe::describe(recipe));
    TrainFlags flags = flags_;
    flags.model = model;
    flags.out = out.string();
    flags.resume.clear();
    flags.overwrite = flags_.overwrite && !flags_.resume_given;
    flags.resume_given = flags_.resume_given && model::file::latest_checkpoint(out).has_value();
    flags.recipe = flags.resume_given ? "" : text.string();  // a checkpoint has its own recipe and model
    if (flags.resume_given) {
      flags.model.clear();
    } else {  // the recipe contains them
      flags.changed_recipe = flags.changed_data = flags.bf16 = false;
      flags.values.clear();
      flags.objective_settings.clear();
      flags.format.clear();
    }
    if (model::recipe::phase_begin(whole_.phases[i].begin) == model::recipe::PhaseBegin::adapter)
      flags.begin = handed_over(i - 1).string();
    note(fmt::format("phase {} of {}: {}{}", i + 1, whole_.phases.size(), whole_.phases[i].name,
                     flags.resume_given ? ", resumed" : ""));
    return train_(shared_, flags);
  }

  const Shared& shared_;
  const TrainFlags& flags_;
  int (*train_)(const Shared&, TrainFlags&);
  fs::path run_;
  model::recipe::PhasesState state_;
  model::recipe::Recipe whole_;
};

}  // namespace

bool trains_in_phases(const Shared& shared, const TrainFlags& flags) {
  if (flags.resume_given) return model::recipe::read_phases(run_folder(flags)).has_value();
  if (flags.recipe.empty()) return false;
  return !named_recipe(*shared.library(), flags.recipe).phases.empty();
}

int train_phases(const Shared& shared, const TrainFlags& flags, int (*train)(const Shared&, TrainFlags&)) {
  return Phases(shared, flags, train).run();
}

}  // namespace lumen::cli
