// lumen train
#include "cli/train/train.h"

#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/file/file.h"
#include "base/file/folder.h"
#include "base/file/lock.h"
#include "base/file/temporary.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/paths/paths.h"
#include "cli/train/train_data.h"
#include "cli/train/train_flags.h"
#include "cli/train/train_phases.h"
#include "cli/train/train_ranks.h"
#include "model/arch/checkpoint/read.h"
#include "model/arch/split_weights.h"
#include "model/file/own_input.h"
#include "model/recipe/record/lora_base.h"
#include "model/templates/answer_form.h"
#include "model/text/tokenizer/characters.h"
#include "model/train/adapter_init/adapter_init.h"
#include "model/train/budget/budget.h"
#include "model/train/loop/loop.h"
#include "model/train/loop/outputs.h"
#include "model/train/method/machine_floats.h"
#include "model/train/method/method.h"
#include "model/train/ranks/ranks.h"
#include "model/train/trainer/forecast.h"
#include "run/engine/roofline.h"

namespace lumen::cli {
namespace {

namespace fs = std::filesystem;

thread_local TrainingLoop given_loop;

model::train::LoopResult run_loop(model::train::Trainer& trainer, const model::train::LoopOptions& options) {
  const SavesWhenStopped checkpoint_first;
  return given_loop ? given_loop(trainer, options) : model::train::run_training(trainer, options);
}

// Whether this process writes files and messages.
bool is_first(const TrainFlags& flags) {
  return !flags.ranks || flags.ranks->rank() == 0;
}

int ranks_of(const TrainFlags& flags) {
  return flags.ranks ? flags.ranks->size() : flags.plan ? std::max(1, flags.ranks_here) : 1;
}

// The part of a recipe that this rank runs.
model::recipe::Recipe recipe_here(const TrainFlags& flags, const model::recipe::Recipe& recipe) {
  return model::train::recipe_of_rank(recipe, ranks_of(flags));
}

model::text::Tokenizer make_tokenizer(const std::string& choice, const TrainingData& data,
                                      const std::string& chat_template) {
  const auto tokens = byte_pair_tokens(choice);
  if (!tokens && !choice.empty() && choice != "characters") return model::text::Tokenizer::load(choice);
  model::data::RowReport report;
  const std::string text = data.all_text(chat_template, &report);
  if (text.empty()) throw user_error("the data has no text to train a tokenizer on\n{}", report.table());
  model::templates::ChatVocabulary chat;
  if (data.has_chats())
    chat = model::templates::chat_vocabulary(
        model::templates::choose_template(chat_template, model::text::Tokenizer::characters(" ")));
  // Rows without text give no tokens either, and make_batches reports each of them once.
  if (!tokens) return model::text::character_tokenizer(text, chat.controls, chat.end);
  model::text::BpeTraining options;
  options.vocabulary = *tokens;
  options.specials = chat.controls;
  options.end_of_text = chat.end;
  model::text::Tokenizer made = model::text::Tokenizer::train(text, options);
  if (made.size() < *tokens)
    note(fmt::format("the text gives a vocabulary of {}: no further pair of tokens is frequent enough", made.size()));
  return made;
}

// Makes one path absolute, or several separated by commas.
std::string absolute_path(const std::string& paths) {
  if (paths.empty()) return paths;
  std::string out;
  for (const std::string& path : split_paths(paths))
    out += (out.empty() ? "" : ",") + fs::absolute(path).lexically_normal().string();
  return out;
}

// Windows longer than the model's context extend the context, where the parameters do not depend on it.
void fit_context(model::arch::Model& model, const model::recipe::Recipe& r) {
  if (!model.config.contains("context")) return;
  const int64_t context = model.integer("context");
  if (r.length <= context) return;
  graph::Config longer = model.config;
  longer["context"] = r.length;
  model::arch::Model other;
  other.family = model.family;
  other.config = longer;
  other.metadata = model.metadata;
  const auto parameters = model::arch::own_parameters(other);
  bool same = parameters.size() == model.parameters.size();
  for (size_t i = 0; same && i < parameters.size(); ++i) same = parameters[i].shape == model.parameters[i].shape;
  if (!same) throw usage_error("--length {} is more than the model's context of {}", r.length, context);
  note(fmt::format("the model's context grows from {} to {}", context, r.length));
  model.config = longer;
}

// Whether a fresh run writes a residual base model before its first step.
bool changes_base(const TrainFlags& flags, const model::recipe::Recipe& r) {
  return flags.begin.empty() && r.adapter.trains() && r.adapter.changes_base();
}

// Replaces names of the machine's 8-bit float types with format names; a resumed run keeps its formats.
void take_machine_floats(run::Engine& engine, const model::arch::Library& library, bool goes_on,
                         model::recipe::Recipe& r) {
  const auto& codes = engine.device().machine().codes;
  const auto multiplies = [&](const FieldType& t) {
    const auto code = machine::code_of(t);
    return code && std::find(codes.begin(), codes.end(), *code) != codes.end();
  };
  std::string said;
  r = model::train::with_machine_floats(std::move(r), multiplies, library.formats(), &said);
  if (goes_on && said.empty()) said = model::train::other_floats(r, multiplies, library.formats());
  if (!said.empty()) note(said);
}

std::string product_kind(const model::arch::Library& library, const model::recipe::Recipe& r) {
  const graph::ProductType products = model::recipe::product_type(r, library.formats());
  return products.has_formats() ? "8 bit" : std::string(scalar_name(products.scalar));
}

double product_ceiling(run::Engine& engine, const model::arch::Library& library, const model::recipe::Recipe& r,
                       const Shared& shared) {
  return run::product_ceiling(engine, product_kind(library, r), shared.cache);
}

double higher_product_ceiling(run::Engine& engine, const model::arch::Library& library, const model::recipe::Recipe& r,
                              const Shared& shared) {
  return run::higher_product_ceiling(engine, product_kind(library, r), shared.cache);
}

// --memory: adapts the recipe so that the run fits into the limit. With several ranks the first one measures and sends
// its choice to the others.
void take_limit(run::Engine& engine, const Shared& shared, const model::arch::LibraryRef& library,
                const TrainFlags& flags, const model::arch::Model& model, model::recipe::Recipe& r, bool is_there,
                const model::arch::Model* teacher) {
  if (r.memory_limit.empty()) return;
  std::string said;
  const std::optional<Error> failure = model::train::RankedStep::attempt([&] {
    if (!is_first(flags)) return;
    const model::train::MemoryBudget budget = model::train::within_limit(
        engine, model, r, {}, is_there, teacher, [&] { return product_ceiling(engine, *library, r, shared); },
        ranks_of(flags));
    note(budget.text);
    said = budget.recipe.recompute + "\n" + budget.recipe.offload;
  });
  if (flags.ranks) {
    model::train::agree(*flags.ranks, failure);
    said = flags.ranks->all_gather(said).at(0);
  } else if (failure) {
    throw Error(*failure);
  }
  r.recompute = said.substr(0, said.find('\n'));
  r.offload = said.substr(said.find('\n') + 1);
}

void require_room(const TrainFlags& flags, const fs::path& out, const model::arch::Model& model,
                  const model::recipe::Recipe& r) {
  if (!flags.plan && is_first(flags))
    model::train::require_room(out, model, r, model::file::list_checkpoints(out).size());
}

// Checks the memory before weights are read or initialized. --plan covers a single step and plans it later.
void require_planned(run::Engine& engine, const model::arch::Model& model, const model::recipe::Recipe& recipe,
                     bool is_there, const model::arch::Model* teacher, int ranks) {
  (void)model::train::require_training(engine, model, recipe, is_there, {}, teacher, ranks);
}
void require_certain(run::Engine& engine, const model::arch::Model& model, const model::recipe::Recipe& recipe,
                     bool is_there, const model::arch::Model* teacher, int ranks) {
  model::train::require_certain_training(engine, model, recipe, is_there, {}, teacher, ranks);
}

// The model that a run starts from: a file, or new weights of a named size with the tokenizer's vocabulary.
model::arch::Model starting_model(run::Engine& engine, const Shared& shared, const model::arch::LibraryRef& library,
                                  const TrainFlags& flags, model::recipe::Recipe& r, const TrainingData& data,
                                  const model::arch::Model* teacher, const fs::path& out) {
  if (!flags.model.empty()) {
    model::arch::Model model = model::arch::read_model(library, flags.model);
    if (model.tokenizer && flags.has("data.tokenizer")) {
      throw usage_error("--tokenizer {} and --model {} contradict each other: the model has a tokenizer",
                        flags.text("data.tokenizer"), flags.model);
    }
    if (!model.tokenizer) model.tokenizer = make_tokenizer(r.tokenizer, data, r.chat_template);
    fit_context(model, r);
    r.family = model.family->name();
    if (r.adapter.trains()) r.base = flags.model.starts_with("hf:") ? flags.model : absolute_path(flags.model);
    take_limit(engine, shared, library, flags, model, r, true, teacher);
    const auto require = flags.plan ? require_certain : require_planned;
    require(engine, changes_base(flags, r) ? model::train::residual_base_outline(model, r) : model,
            recipe_here(flags, r), true, teacher, ranks_of(flags));
    return model;
  }
  if (r.size.empty()) r.size = "char";
  model::arch::FamilyRef family;
  if (!r.family.empty()) {
    family = library->family(r.family);
  } else {
    family = library->family_with_size(r.size);
    if (!family) throw Error(Exit::usage, fmt::format("no family has a size '{}'", r.size), size_names());
  }
  r.family = family->name();
  const model::text::Tokenizer tokenizer = make_tokenizer(r.tokenizer, data, r.chat_template);
  graph::Config values = r.config;
  values["vocab"] = tokenizer.size();
  if (r.length > 0) values["context"] = r.length;
  const graph::Config config = family->config(r.size, values);
  model::arch::Model outline = model::arch::outline(family, config);
  outline.name = r.size;
  take_limit(engine, shared, library, flags, outline, r, false, teacher);
  (flags.plan ? require_certain : require_planned)(engine, outline, recipe_here(flags, r), false, teacher,
                                                   ranks_of(flags));
  require_room(flags, out, outline, r);  // before billions of random numbers are drawn
  model::arch::Model model = flags.plan ? std::move(outline) : model::arch::initialise(family, config, r.seed);
  model.tokenizer = tokenizer;
  model.name = r.size;
  return model;
}

// The origin of a resumed run: its folder and, unless one is named, its latest checkpoint.
struct Resumed {
  fs::path run;
  std::optional<fs::path> named;

  explicit Resumed(const TrainFlags& flags)
      : run(flags.resume.empty() ? flags.out.value_or("lumen-out") : flags.resume) {
    std::error_code error;
    if (!fs::exists(run / "trainer_state.json", error)) return;
    named = run;
    run = fs::absolute(run).lexically_normal();
    if (!run.has_filename()) run = run.parent_path();
    run = run.parent_path();
  }
  fs::path checkpoint() const {
    if (named) return *named;
    const auto latest = model::file::latest_checkpoint(run);
    if (!latest) throw user_error("no checkpoint in {}", run.string());
    return *latest;
  }
};

// Writes the residual base that the recipe's adapter initialization needs and sets it as the recipe's base. With
// several ranks the first one writes it.
model::arch::Model residual_model(run::Engine& engine, const model::arch::LibraryRef& library,
                                  const model::arch::Model& given, model::recipe::Recipe& r, const fs::path& out,
                                  const TrainFlags& flags) {
  if (!is_first(flags)) {
    flags.ranks->barrier();
    const fs::path base = model::train::residual_base_path(out, given, r);
    r.base = absolute_path(base.string());
    return model::arch::read_model(library, base);
  }
  Progress progress;
  int64_t done = 0;
  const auto tensors =
      model::train::write_residual_base(engine, given, r, out, [&](const model::train::ResidualTensor& t) {
        progress.update(fmt::format("{} {} {}", r.adapter.init, ++done, t.name));
      });
  const fs::path base = model::train::residual_base_path(out, given, r);
  progress.finish(fmt::format("{}; wrote {}", model::train::residual_text(tensors, r.adapter), base.string()));
  if (flags.ranks) flags.ranks->barrier();
  r.base = absolute_path(base.string());
  return model::arch::read_model(library, base);
}

// Prepares the output folder: files of another run are not mixed with this run's, and nothing is replaced silently.
void prepare_folder(const TrainFlags& flags, const fs::path& out) {
  model::file::clean_checkpoints(out);
  remove_leavings(out / "hf");
  const auto earlier = model::train::earlier_outputs(out);
  if (earlier.empty()) return;
  if (!flags.overwrite) {
    throw Error(
        Exit::user,
        fmt::format("'{}' holds the result of another run ({})", out.string(), earlier.front().filename().string()),
        "continue it with --resume, name another folder with --out, or add --overwrite");
  }
  for (const fs::path& path : earlier) model::file::discard_checkpoint(path);
  // Residual bases of the other run are of no use, because this run writes its own.
  for (const fs::path& path : model::train::residual_base_files(out)) remove_tree(path);
}

// Protects the files that a recipe names from being overwritten by the run.
struct ProtectedInputs {
  ProtectedInputs(const TrainFlags& flags, const model::recipe::Recipe& recipe);
  ProtectedFiles files;
};
ProtectedInputs::ProtectedInputs(const TrainFlags& flags, const model::recipe::Recipe& recipe) {
  const auto protect = [&](const std::string& value, Reads what) {
    for (const std::string& path : paths_in(value)) {
      try {
        for (const fs::path& file : files_read(path, what)) files.add(file);
      } catch (const Error&) {
        // A missing or unreadable file is reported by the code that reads it.
      }
    }
  };
  for (const auto& [value, what] : std::initializer_list<std::pair<std::string, Reads>>{
           {flags.recipe, Reads::file},
           {flags.model.empty() ? recipe.base : flags.model, Reads::model},
           {recipe.data, Reads::data},
           {recipe.validation_data, Reads::data},
           {recipe.chat_template, Reads::file},
           {recipe.tokenizer, Reads::file},
           {recipe.objective.name, Reads::file},
           {recipe.objective.teacher, Reads::model}})
    protect(value, what);
}

// Checks that a resumed run reads the same files as before and gets the same tokens.
void compare_data(const TrainFlags& flags, const model::recipe::StoredRun& stored, const model::data::Batches& data,
                  double validation) {
  std::string changes = model::recipe::data_changes(stored.files, data.files());
  if (changes.empty() && validation == stored.recipe.validation && !(data.token_hash() == stored.tokens))
    changes = "the data makes other tokens than in the checkpoint's run";
  if (changes.empty()) return;
  if (!flags.changed_data) {
    throw Error(Exit::user, "the data has changed: " + changes,
                "name the old data with --data (files are identified by content), or add --allow-changed-data");
  }
  warn("the data has changed: " + changes);
}

// Compares the tokenizer option with the checkpoint's tokenizer.
void compare_tokenizer(const TrainFlags& flags, const model::recipe::StoredRun& stored, const TrainingData& data) {
  const std::string asked = flags.text("data.tokenizer");
  if (!flags.has("data.tokenizer") || asked == stored.recipe.tokenizer) return;
  const bool is_default = asked == "characters" && stored.recipe.tokenizer.empty();
  if (is_default ||
      make_tokenizer(asked, data, stored.recipe.chat_template).to_json() == stored.model.tokenizer->to_json())
    return;
  throw usage_error("--tokenizer {} is another tokenizer than the checkpoint's ({})", asked,
                    stored.recipe.tokenizer.empty() ? "its model's own, or characters" : stored.recipe.tokenizer);
}

// Prepares the folder for the run's output; a resumed run keeps its files.
void take_folder(const TrainFlags& flags, const fs::path& out, bool resumed_here) {
  if (!resumed_here) return prepare_folder(flags, out);
  model::file::clean_checkpoints(out);
  remove_leavings(out / "hf");
}

// Makes the paths in a stored recipe independent of the current folder.
void make_paths_absolute(model::recipe::Recipe& recipe) {
  recipe.data = absolute_path(recipe.data);
  recipe.eval_data = absolute_path(recipe.eval_data);
  recipe.validation_data = absolute_path(recipe.validation_data);
  if (model::templates::is_template_file(recipe.chat_template))
    recipe.chat_template = fs::absolute(recipe.chat_template).lexically_normal().string();
}

// The teacher model, if the objective has one; its path becomes absolute.
std::shared_ptr<const model::arch::Model> read_teacher(const model::arch::LibraryRef& library,
                                                       model::recipe::Recipe& recipe) {
  std::string& path = recipe.objective.teacher;
  if (path.empty()) return nullptr;
  auto teacher = std::make_shared<const model::arch::Model>(model::arch::read_model(library, path));
  if (!path.starts_with("hf:")) path = fs::absolute(path).lexically_normal().string();
  return teacher;
}

void note_short_schedule(const model::recipe::Schedule& schedule) {
  if (schedule.warmup >= schedule.steps)
    note(fmt::format("{} steps end within the warm-up of {}: the rate does not reach its peak of {}", schedule.steps,
                     schedule.warmup, schedule.peak));
}

// Restores the run's state, or loads the adapter that it starts with.
void begin_training(model::train::Trainer& trainer, const TrainFlags& flags, const model::arch::Library& library,
                    std::optional<model::file::Checkpoint>& checkpoint) {
  if (checkpoint) {
    trainer.restore(*checkpoint, {flags.changed_recipe, flags.changed_data});
    note(fmt::format("resumed from {} at step {}", checkpoint->folder.string(), trainer.done()));
    checkpoint.reset();
  } else if (!flags.begin.empty()) {
    trainer.begin_with(model::file::load_checkpoint(flags.begin, library.formats()));
    note(fmt::format("begins with the adapter of {}", flags.begin));
  }
}

// Ranks that do not train the same model on the same data would diverge silently, so this compares them.
void require_same(const TrainFlags& flags, const model::recipe::Recipe& recipe, const model::data::Batches& batches,
                  const std::optional<model::file::Checkpoint>& checkpoint) {
  if (!flags.ranks) return;
  const std::string mine = fmt::format("{}\n{}\n{}", hash_text(model::recipe::describe_training(recipe)).hex(),
                                       batches.token_hash().hex(), checkpoint ? checkpoint->state.step : 0);
  const std::vector<std::string> all = flags.ranks->all_gather(mine);
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r] != all[0])
      throw Error(Exit::user,
                  fmt::format("rank {} has another recipe, other data or another checkpoint than rank 0", r),
                  "all ranks are started with the same words, and read the same files");
}

// Writes the model's files and prints the summary line.
void write_results(run::Engine& engine, model::train::Trainer& trainer, const fs::path& out,
                   const model::train::LoopResult& result) {
  trainer.finish();
  std::string written;
  try {
    const std::vector<model::train::Output> outputs = model::train::write_outputs(engine, trainer, out);
    for (const model::train::Output& output : outputs) written += fmt::format("wrote {}\n", output.line());
    model::train::log_outputs(out, trainer, outputs);
  } catch (const Error& error) {
    throw Error(error.code(), error.what(),
                fmt::format("{}{}the checkpoint {} is whole: --resume {} writes the model again", error.hint(),
                            error.hint().empty() ? "" : "; ", result.checkpoint.string(), result.checkpoint.string()));
  }
  std::string text;
  if (result.tokens_per_second > 0) text = fmt::format("train loss {:.4f} | ", result.train_loss);
  text += fmt::format("validation loss {:.4f} nats per token (perplexity {:.3f})", result.validation_loss,
                      std::exp(result.validation_loss));
  if (result.best_step >= 0) text += fmt::format(" | the best weights, of step {}", result.best_step);
  if (result.tokens_per_second > 0)
    text += fmt::format(" | {:.0f} tokens/s | {}", result.tokens_per_second, format_duration(result.seconds));
  put(fmt::format("{}\n{}wrote {}\n", text, written, result.checkpoint.string()));
}

// The first rank of a host compiles first; the others then find the kernels in the cache.
std::unique_ptr<model::train::Trainer> make_trainer(run::Engine& engine, const Shared& shared, const TrainFlags& flags,
                                                    model::arch::Model model, const model::recipe::Recipe& recipe,
                                                    const std::shared_ptr<const model::data::Batches>& batches,
                                                    const std::shared_ptr<const model::arch::Model>& teacher) {
  const bool is_first_here = !flags.ranks || flags.ranks->local_rank() == 0;
  if (!is_first_here) flags.ranks->barrier();
  auto trainer =
      std::make_unique<model::train::Trainer>(engine, std::move(model), recipe, batches, teacher, flags.ranks);
  if (flags.ranks && is_first_here) flags.ranks->barrier();
  if (flags.ranks) flags.ranks->use(engine.device(), shared.device);
  return trainer;
}

// Finishes a run and returns its exit code.
int hand_over(run::Engine& engine, model::train::Trainer& trainer, const TrainFlags& flags, const fs::path& out,
              const model::train::LoopResult& result) {
  if (result.interrupted) {
    note(fmt::format("stopped at step {}; continue with --resume {}", trainer.done(), result.checkpoint.string()));
    return exit_code(Exit::interrupted);
  }
  if (is_first(flags))
    write_results(engine, trainer, out, result);
  else
    trainer.finish();
  if (flags.ranks) flags.ranks->barrier();
  return 0;
}

// The path and hash of the model whose own weights are trained; empty for adapters, whose files name their base, and
// for new models.
model::train::Trainer::Origin origin_of(const TrainFlags& flags, const model::recipe::Recipe& recipe,
                                        const model::arch::Model& model) {
  if (flags.model.empty() || recipe.adapter.trains()) return {};
  return {flags.model.starts_with("hf:") ? flags.model : absolute_path(flags.model),
          model::arch::weights_hash(model).hex()};
}

int train(const Shared& shared, TrainFlags& flags) {
  check_train_flags(flags);
  const model::arch::LibraryRef library = shared.library();
  if (!flags.format.empty()) (void)named_format(library->formats(), flags.format);
  std::optional<Resumed> resumed;
  if (flags.resume_given) resumed.emplace(flags);
  const fs::path out = flags.out ? fs::path(*flags.out) : resumed ? resumed->run : fs::path("lumen-out");
  std::error_code ignored;
  if (resumed && !fs::is_directory(resumed->run, ignored))
    throw user_error("no checkpoint in {}", resumed->run.string());
  const bool own_folder = resumed && fs::equivalent(out, resumed->run, ignored);
  if (own_folder && flags.overwrite)
    throw usage_error("--overwrite and --resume contradict each other: '{}' is the run that is resumed", out.string());
  std::optional<FolderLock> lock;
  if (!flags.print_config && !flags.plan && is_first(flags)) lock.emplace(out);
  std::optional<model::file::Checkpoint> checkpoint;
  std::optional<model::recipe::StoredRun> stored;
  if (resumed) {
    checkpoint = model::file::load_checkpoint(resumed->checkpoint(), library->formats());
    stored = model::recipe::read_run(library, *checkpoint, flags.model);
  }
  model::recipe::Recipe recipe =
      stored ? resumed_recipe(*library, flags, stored->recipe) : fresh_recipe(*library, flags);
  if (flags.print_config) {
    put_text(model::recipe::describe(recipe));
    return 0;
  }
  const ProtectedInputs inputs(flags, recipe);
  if (!flags.plan) model::train::refuse_outputs_over_inputs(out, stored.has_value());
  recipe.run_folder = out.string();
  if (!flags.plan && is_first(flags)) take_folder(flags, out, own_folder);
  TrainingData data = find_training_data(recipe);
  make_paths_absolute(recipe);
  const std::shared_ptr<const model::arch::Model> teacher = read_teacher(library, recipe);
  run::Engine engine = shared.engine(flags.explain);
  take_machine_floats(engine, *library, stored.has_value(), recipe);
  model::arch::Model model;
  if (stored) {
    compare_tokenizer(flags, *stored, data);
    recipe.tokenizer = stored->recipe.tokenizer;
    model = std::move(stored->model);
    // A resumed run keeps the choice that it started with.
    if (flags.has("memory.limit")) take_limit(engine, shared, library, flags, model, recipe, true, teacher.get());
    model::train::require_training(engine, model, recipe_here(flags, recipe), true, {}, teacher.get(), ranks_of(flags));
  } else {
    model = starting_model(engine, shared, library, flags, recipe, data, teacher.get(), out);
    std::error_code error;
    if (fs::exists(recipe.tokenizer, error)) recipe.tokenizer = absolute_path(recipe.tokenizer);
  }
  if (!flags.plan && is_first(flags)) {
    model::train::check_outputs(model, recipe);
    require_room(flags, out, model, recipe);
  }
  choose_template(data, recipe, stored && !flags.has("data.chat_template"), model);
  note(fmt::format("{}: {:.2f} M parameters, vocabulary {}", model.name, model.weight_count() / 1e6,
                   model.tokenizer->size()));
  const auto batches =
      make_batches(data, *model.tokenizer, recipe, model::train::window_length(model, recipe), data_cache(shared));
  // Before weights are quantized and memory is allocated, which takes minutes for large models.
  if (!flags.plan) model::train::require_tokens(*batches, model);
  if (stored) compare_data(flags, *stored, *batches, recipe.validation);
  if (const auto steps = stored ? std::nullopt : steps_of_epochs(recipe, *batches)) recipe.schedule.steps = *steps;
  model::recipe::settle_warmup(recipe.schedule);
  note_short_schedule(recipe.schedule);
  const model::train::BatchForm form{batches->has_weights(), batches->has_starts()};
  const bool residual = !stored && changes_base(flags, recipe), is_there = !flags.plan || !flags.model.empty();
  const run::MemoryNeeds before = residual ? model::train::residual_base_needs(model, recipe) : run::MemoryNeeds();
  run::require_host_memory(fmt::format("changing the base '{}' ({})", model.name, recipe.adapter.init), before,
                           "choose a smaller model, or begin with --lora-init default");
  std::optional<model::arch::Model> base;
  if (residual) base = model::train::residual_base_outline(model, recipe);
  const model::arch::Model& trained = base ? *base : model;
  model::train::TrainingForecast f = model::train::require_training(engine, trained, recipe_here(flags, recipe),
                                                                    is_there, form, teacher.get(), ranks_of(flags));
  if (flags.plan) {
    for (const run::MemoryNeed& need : before) f.residual_base = run::saturating_sum(f.residual_base, need.bytes);
    put_text(model::train::plan_text(f, product_ceiling(engine, *library, recipe, shared)));
    return 0;
  }
  base.reset();
  model::train::Trainer::Origin origin = origin_of(flags, recipe, model);
  if (residual) model = residual_model(engine, library, model, recipe, out, flags);
  require_same(flags, recipe, *batches, checkpoint);
  const auto made = make_trainer(engine, shared, flags, std::move(model), recipe, batches, teacher);
  model::train::Trainer& trainer = *made;
  trainer.set_origin(std::move(origin));
  if (residual)
    trainer.begin_with(model::train::read_initial_adapter(trainer.outline(), trainer.changes(), out).adapter);
  if (!trainer.decoded().empty() && !stored) note(trainer.decoded());
  begin_training(trainer, flags, *library, checkpoint);
  catch_interrupts();
  model::train::LoopOptions options;
  options.out = out;
  options.stop = &interrupted();
  options.ceiling = product_ceiling(engine, *library, recipe, shared);
  options.higher_ceiling = [&] { return higher_product_ceiling(engine, *library, recipe, shared); };
  const model::train::LoopResult result = run_loop(trainer, options);
  if (flags.explain && is_first(flags)) std::fputs(trainer.explain().c_str(), stderr);
  return hand_over(engine, trainer, flags, out, result);
}

}  // namespace

void take_steps_by(TrainingLoop loop) {
  given_loop = std::move(loop);
}

void add_train(CLI::App& app, Command& command) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* sub = app.add_subcommand("train", "Train or fine-tune a model, in any number format");
  CLI::Option* resume = add_train_flags(*sub, *flags);
  sub->footer([] {
    return size_names() +
           "\n\n"
           "Ctrl-C, SIGTERM and SIGHUP save a checkpoint and end with code 128 + the signal's number (130, 143,\n"
           "129); --resume continues bit for bit, on any number of threads. Values that are not finite are never "
           "saved: the\n"
           "run then ends with code 4.\n"
           "Examples:\n"
           "  lumen train --shape char -o my-model\n"
           "  lumen train --shape char --data poems.txt --steps 5000 --lr 1e-3 -o poems\n"
           "  lumen train -o my-model --resume\n"
           "  lumen train -m my-model/model.gguf --format " +
           example_format(4.5) + " --steps 300 --lr 2e-4 -o tuned\n" +
           "  lumen train --recipe char --print-config > mine.toml";
  });
  add_shared_flags(*sub, command.shared);
  sub->callback([flags, resume, &command] {
    flags->resume_given = resume->count() > 0;
    command.action = [flags, shared = command.shared] {
      take_document_settings(*flags);
      if (!trains_in_phases(*shared, *flags)) return train_by_ranks(*shared, *flags, train);
      if (has_ranks(*flags))
        throw Error(Exit::usage, "a recipe of several phases is trained by one process",
                    "train each phase as a run of its own to have several ranks");
      return train_phases(*shared, *flags, train);
    };
  });
}

}  // namespace lumen::cli
