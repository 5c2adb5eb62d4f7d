// Recipes: a training run as data, with its learning rate schedule. A TOML file with [model], [data], [optimizer],
// [schedule], [run], [evaluation], [report], [output] and [[quantize]]; every key is optional, unknown keys are errors,
// and command-line flags override single values. `describe` prints the resolved recipe as TOML that parses to the same
// recipe. Proved by tests/model/train/train_test.cpp.
//
// May include: base, base/file, base/structured, graph/pass, graph/transform, model/arch, model/arch/adapter,
// model/arch/family, model/file, model/recipe/objective, model/recipe/optimizer, model/templates, number/codec,
// number/facts, number/formula, number/library, run/device.
// Offers: phases.h, recipe_keys.def, recipe_keys.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/structured/toml.h"
#include "graph/pass/pass.h"
#include "model/arch/model.h"
#include "model/recipe/adapter_settings.h"
#include "model/recipe/groups.h"
#include "model/recipe/objective/objective.h"
#include "model/recipe/offload_settings.h"
#include "model/recipe/optimizer/optimizer_rule.h"
#include "model/recipe/product_settings.h"
#include "model/recipe/rule_scope.h"
#include "model/recipe/schedule.h"

namespace lumen::model::recipe {

// One [[quantize]] rule: a format for matching parameters. Later rules win.
struct QuantizeRule {
  std::vector<std::string> values;  // parameter names; * and ? match
  std::vector<std::string> roles;   // or parameter roles
  // "all", "first 4", "first 1/8", "from 7/8", "more" (both outer eighths and every third between)
  std::string layers = "all";
  std::string format;
  FieldSource source = FieldSource::fitted;
  std::vector<std::string> tensors = {};  // or names in GGUF files, * and ? match; a model may lack them
  RuleScope scope = {};                   // models that the rule applies to
  std::string place = {};                 // position in the file, for messages
  std::optional<bool> importance = {};    // applies only with an importance matrix, or only without
};

// One [[phase]]: the values that replace those of the recipe around it, as text of the same form.
struct Phase {
  std::string name, begin = "model", text;
};

struct Recipe {
  std::string name;
  // Where each value is set, as "schedule.steps" and "mine.toml:3:9", for messages about contradicting values.
  std::map<std::string, std::string> places;
  // [model]
  std::string family, size;  // a size without a family selects its family
  graph::Config config;      // overrides of single keys
  std::string base;          // the base model of an adapter: file or folder
  // [data]
  std::string data;       // file or folder; "" = the built-in text
  std::string tokenizer;  // "" or "characters", "bytes:N" (BPE of N tokens trained on the data), or a file
  double validation = 0.1;
  std::string validation_data;         // files for validation instead of a share of the data
  std::string data_form = "auto";      // of rows: auto, texts, chats, pairs, labels
  std::string train_on = "assistant";  // of chats: all, assistant, last
  std::string chat_template;           // a name or a file; "": the model's own
  std::vector<std::string> columns;    // "prompt=Q": assigns a file's columns to roles
  std::vector<std::string> mix;        // weights of several data sets
  bool packing = false;                // several examples share a window
  std::string overflow = "cut";        // or drop: examples longer than a window
  double epochs = 0;                   // 0: schedule.steps sets the length
  bool strict = false;                 // an unusable row is an error
  // [objective]
  ObjectiveSettings objective;
  // [optimizer]
  OptimizerSettings optimizer;
  std::vector<ParameterGroup> groups;  // [[group]]
  // [adapter]: trained instead of the model's weights
  AdapterSettings adapter;
  // [ship]: the quantization that the adapter is trained to account for
  ShipSettings ship;
  // [schedule]
  Schedule schedule;
  // [run]
  int64_t batch = 12, length = 0;  // length 0: the model's context
  int64_t accumulate = 1;
  int64_t evaluate_every = 250, evaluate_windows = 0;  // windows 0: all at the end, 64 during training
  int64_t save_every = 0;                              // 0: only at the end and on Ctrl-C
  int64_t keep = 2;                                    // checkpoints kept
  uint32_t seed = 1;
  std::string on_nan = "stop";  // or "rollback": to the last good checkpoint, skipping the batches after it
  double spike_factor = 0;      // a loss or norm above this multiple of the recent median counts as well; 0: never
  int64_t rollbacks = 3;        // at most
  // A float type: operands of products with parameters and of attention are rounded to it; accumulation is in f32.
  std::string precision = "f32";
  // [products]: formats to which operands of products are quantized instead (product_settings.h).
  ProductSettings products;
  // Activation recomputation: "none", "maps", "layers", "auto", or a limit for saved activations ("4GiB"). Affects only
  // speed and memory.
  std::string recompute = "none";
  // [memory]: the format in which saved activations are stored between the passes; "": their own type.
  std::string kept;
  // State offloaded from device memory (offload_settings.h).
  std::string offload;
  std::string memory_limit;  // of device memory; "": all of it. Memory-saving methods are chosen to fit (budget.h)
  std::string run_folder;    // where the run's own files are written; not a key, set by the caller
  // Type of parameters between steps, the rounding to it, and the type of the rounding residual (held.h).
  std::string param_type = "f32", param_rounding = "stochastic", param_compensation = "none";
  // [ranks]: settings for several processes. Sharding: none, states (ZeRO 1), gradients (ZeRO 2) or parameters (ZeRO
  // 3); the formats in which gradients are reduced and parameter updates gathered; and whether communication may
  // overlap with computation, where memory allows.
  std::string shard = "none", reduce_type = "f32", gather_type = "f32";
  bool overlap = true;
  bool sequence_parallel = false;  // among tensor-parallel ranks, activations between products are split along tokens
  int64_t tensor_parallel = 1;     // neighbouring ranks that split each matrix of a model
  // [evaluation], with each validation loss during training, and at the end
  std::vector<std::string> eval_tasks;  // names, or task files
  std::string eval_data;                // folder with their data
  bool eval_kl = false;                 // KL divergence from the reference model on validation data
  int64_t eval_limit = 50;              // rows of each, at most; 0: all
  std::string samples;                  // prompts to complete, one a line
  int64_t sample_tokens = 48;
  int64_t early_stopping = 0;              // stops after this many evaluations without improvement; 0: never
  std::string metric = "validation_loss";  // the metric for the best checkpoint: that, or TASK.FIGURE
  bool load_best = false;                  // write the best checkpoint's weights at the end
  // [report]
  bool tensorboard = false;
  // [output]
  std::string output_type = "f32";  // of the model's matrices: a format or a mixture
  bool hugging_face = false;        // also writes a Hugging Face folder
  std::string merge;                // of an adapter: also write the merged model, in a format, a mixture, or "base"
  // [[quantize]]
  std::vector<QuantizeRule> quantize;
  // [file] of a mixture: `type` is general.file_type of GGUF files, `also` are aliases.
  int64_t file_type = -1;
  std::vector<std::string> also;
  // [fallback]: the replacement of a format whose block size does not divide a tensor's rows; may itself have one.
  std::map<std::string, std::string> fallback;
  // [[phase]] (phases.h): trained in order. Empty: the recipe is one run.
  std::vector<Phase> phases;
  // [demo]
  std::vector<std::string> demo_formats, demo_trained;
  std::string demo_sample;
  int64_t demo_tuning_steps = 0;
  // [compress]: options of `lumen quantize`, with values as on a command line.
  std::vector<std::pair<std::string, std::vector<std::string>>> compress;
};

// Keys absent from the text keep the values of `base`. A number out of its bounds is an Error with its position.
Recipe parse_recipe(std::string text, std::string name, Recipe base = {});
std::string describe(const Recipe& recipe);
// The same without keys that do not affect training (RecipeEffect::none): paths, how often to save.
std::string describe_training(const Recipe& recipe);

// A recipe as a list of values, in the order of `describe`, for comparison. All [[quantize]] rules are one value.
struct RecipeValue {
  std::string section, key, text;
};
std::vector<RecipeValue> values_of(const Recipe& recipe);
// The values of `now` that differ from `base`, as recipe text.
std::string changed_values(const Recipe& base, const Recipe& now);

// Bounds of a recipe's number ("schedule.learning_rate"), for files and flags alike.
struct Bounds {
  double least, most;
  bool holds(double value) const { return value >= least && value <= most; }  // never for NaN
  std::string text() const;                                                   // "0 to 0.9"
};
Bounds bounds_of(const std::string& key);
// Runs `check`, which validates keys of a section; its Errors get the key's file position as a prefix.
void in_section(const Recipe& recipe, const std::string& section, const std::function<void()>& check);
// Error (usage) when a number is out of its bounds or two values contradict each other.
void check_recipe(const Recipe& recipe);

// The type that `precision` names: a plain float type, or a format of one 8-bit float without a scale (operands are its
// codes then; the rest of the step is as with bf16). Error when it is neither.
graph::ProductType product_type(const std::string& precision, const FormatLibrary& formats);
// The same with the formats of [products].
graph::ProductType product_type(const Recipe& recipe, const FormatLibrary& formats);
// Whether --precision names a recipe of the library: a type of that name takes precedence.
bool is_recipe_of_products(const arch::Library& library, const std::string& precision);

// The format of each parameter by the rules; parameters without one are absent. Vectors and frozen parameters get one
// only if a rule names them in `values` without wildcards. Error when a rule names values or roles that this model's
// family does not have. `importance`: whether an importance matrix is available.
std::map<std::string, std::pair<FormatRef, FieldSource>> formats_by_rule(const std::vector<QuantizeRule>& rules,
                                                                         const arch::Model& model,
                                                                         bool importance = false);

// The same as fake quantization of a training graph.
std::vector<graph::FormatAssignment> fake_assignments(const std::vector<QuantizeRule>& rules, const arch::Model& model);

// Glob match: * and ? in `pattern`.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace lumen::model::recipe
