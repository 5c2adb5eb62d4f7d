// Recipes: a training run as data. A TOML text with [model], [data], [optimizer], [schedule], [run], [evaluation],
// [report], [output] and [[quantize]]; every key is optional, unknown keys are errors, and the command line overrides
// single values. `describe` prints the resolved recipe as a text that parses to the same recipe. Proved by
// tests/model/train/train_test.cpp.
//
// May include: base, base/file, base/structured, graph/pass, graph/transform, model/arch, model/arch/adapter,
// model/arch/family, model/file, model/recipe/objective, model/recipe/optimizer, model/template, number/codec,
// number/facts, number/formula, number/library, run/device.
// Offers: phases.h, recipe_keys.h.
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
#include "model/recipe/ship_settings.h"

namespace lumen::model {

// One line of [[quantize]]: which values get which format. Later rules win.
struct QuantizeRule {
  std::vector<std::string> values;  // parameter names; * and ? match
  std::vector<std::string> roles;   // or parameter roles
  // "all", "first 4", "first 1/8", "from 7/8", "more" (both outer eighths and every third between)
  std::string layers = "all";
  std::string format;
  FieldSource source = FieldSource::fitted;
  std::vector<std::string> tensors = {};  // or names in GGUF files, * and ? match; models may lack them
  RuleScope scope = {};                   // models it is for
  std::string place = {};                 // where the file says so, for messages
  std::optional<bool> importance = {};    // only with an importance matrix, or only without
};

// One of [[phase]]: what it says in place of the recipe around it, as a text of the same form.
struct Phase {
  std::string name, begin = "model", text;
};

struct Recipe {
  std::string name;
  // Where files say what, as "schedule.steps" and "mine.toml:3:9", for messages about values that do not go together.
  std::map<std::string, std::string> places;
  // [model]
  std::string family, size;  // size alone finds its family
  graph::Config config;      // single keys on top
  std::string base;          // the file or folder an adapter is trained beside
  // [data]
  std::string data;       // file or folder; "" = the text that comes with the program
  std::string tokenizer;  // "" or "characters", "bytes:N" (BPE of N tokens trained on the data), or a file
  double validation = 0.1;
  std::string validation_data;         // files for validation instead of a share
  std::string data_form = "auto";      // of rows: auto, texts, chats, pairs, labels
  std::string train_on = "assistant";  // of chats: all, assistant, last
  std::string chat_template;           // a name or a file; "": the model's own
  std::vector<std::string> columns;    // "prompt=Q": which column of a file stands for which
  std::vector<std::string> mix;        // shares of several data sets
  bool packing = false;                // several examples share a window
  std::string overflow = "cut";        // or drop: examples longer than a window
  double epochs = 0;                   // 0: schedule.steps says how long
  bool strict = false;                 // a row that cannot be used is an error
  // [objective]
  ObjectiveSettings objective;
  // [optimizer]
  OptimizerSettings optimizer;
  std::vector<ParameterGroup> groups;  // [[group]]
  // [adapter]: trained instead of the model's weights
  AdapterSettings adapter;
  // [ship]: what the adapter is trained inside the rounding of
  ShipSettings ship;
  // [schedule]
  Schedule schedule;
  // [run]
  int64_t batch = 12, length = 0;  // length 0: the model's context
  int64_t accumulate = 1;
  int64_t evaluate_every = 250, evaluate_windows = 0;  // windows 0: the whole validation text at the end, 64 on the way
  int64_t save_every = 0;                              // 0: only at the end and on Ctrl-C
  int64_t keep = 2;                                    // checkpoints kept
  uint32_t seed = 1;
  std::string on_nan = "stop";  // or "rollback": back to the last good checkpoint, leaving out what led there
  double spike_factor = 0;      // a loss or norm above so many times the median of the last steps counts, too; 0: never
  int64_t rollbacks = 3;        // at most
  // A float type: operands of products with parameters and of attention are rounded to it; sums are f32.
  std::string precision = "f32";
  // [products]: formats that operands of products pass through instead (product_settings.h).
  ProductSettings products;
  // What of a step is computed again rather than kept: "none", "layers", "auto", or how much its values may take
  // ("4GiB"). Speed and memory alone.
  std::string recompute = "none";
  // [memory]: what gradients read of the forward pass lies in this format between the passes; "": as it is.
  std::string kept;
  // What lies outside of the device's memory (offload_settings.h).
  std::string offload;
  std::string memory_limit;  // what the device may hold; "": all it has. What saves memory is chosen for it (budget.h)
  std::string run_folder;    // where files of the run itself lie; no key: who starts the run knows it
  // What parameters are held in between steps, how they are rounded to it, and what of that is held, too (held.h).
  std::string param_type = "f32", param_rounding = "stochastic", param_compensation = "none";
  // [ranks]: of runs with several processes. What is held in parts: none, states (ZeRO 1), gradients (ZeRO 2) or
  // parameters (ZeRO 3); the formats in which sums of gradients, and changes of parameters, go from one to the other;
  // and whether that may go on beside the computation, where there is room for it.
  std::string shard = "none", reduce_type = "f32", gather_type = "f32";
  bool overlap = true;
  bool sequence_parallel = false;  // among those, what is between their products is dealt along tokens
  int64_t tensor_parallel = 1;     // neighbouring ranks that hold one model together, each a part of its matrices
  // [evaluation], each time the validation loss is computed on the way, and at the end
  std::vector<std::string> eval_tasks;  // names, or task files
  std::string eval_data;                // folder with their data
  bool eval_kl = false;                 // how far the model has gone from the reference on validation data
  int64_t eval_limit = 50;              // rows of each, at most; 0: all
  std::string samples;                  // prompts that are gone on with, one a line
  int64_t sample_tokens = 48;
  int64_t early_stopping = 0;              // evaluations without a better one, after which training ends; 0: never
  std::string metric = "validation_loss";  // which figure is meant: that, or TASK.FIGURE
  bool load_best = false;                  // what is written at the end is the best checkpoint's
  // [report]
  bool tensorboard = false;
  // [output]
  std::string output_type = "f32";  // of the model's matrices: a format or a mixture
  bool hugging_face = false;        // a folder beside the GGUF file
  std::string merge;                // of an adapter: the merged model as well, in a format, a mixture, or "base"
  // [[quantize]]
  std::vector<QuantizeRule> quantize;
  // [file] of a mixture: `type` labels GGUF files, `also` are other names it goes by.
  int64_t file_type = -1;
  std::vector<std::string> also;
  // [fallback]: what a tensor gets instead of a format whose blocks do not divide its rows; then what instead of that.
  std::map<std::string, std::string> fallback;
  // [[phase]] (phases.h): trained one after another. Empty: the recipe is one run.
  std::vector<Phase> phases;
  // [demo]
  std::vector<std::string> demo_formats, demo_trained;
  std::string demo_sample;
  int64_t demo_tuning_steps = 0;
  // [compress]: options of `lumen quantize`, and their values as a command line says them.
  std::vector<std::pair<std::string, std::vector<std::string>>> compress;
};

// Keys that the text does not name stay as in `base`. A number out of its bounds is an Error with its place.
Recipe parse_recipe(std::string text, std::string name, Recipe base = {});
std::string describe(const Recipe& recipe);
// The same without what changes nothing of what is trained (RecipeEffect::none): places, how often is saved.
std::string describe_training(const Recipe& recipe);

// A recipe as the list of its values, in the order of `describe`, so that two can be compared. All [[quantize]] rules
// are one value.
struct RecipeValue {
  std::string section, key, text;
};
std::vector<RecipeValue> values_of(const Recipe& recipe);
// Those of `now` that are others than `base` has, as a recipe's text.
std::string changed_values(const Recipe& base, const Recipe& now);

// What a number of a recipe ("schedule.learning_rate") may be; files and flags are held to the same.
struct Bounds {
  double least, most;
  bool holds(double value) const { return value >= least && value <= most; }  // never for NaN
  std::string text() const;                                                   // "0 to 0.9"
};
Bounds bounds_of(const std::string& key);
// An Error of `check`, which looks at keys of a section, gets the place in front where a file says what it is about.
void in_section(const Recipe& recipe, const std::string& section, const std::function<void()>& check);
// Error (usage) when a number is out of its bounds or two contradict each other.
void check_recipe(const Recipe& recipe);

// What `precision` names: a plain float type, or a format of one 8 bit float without a scale (codes then; everything
// else of a step as with bf16). Error when it is neither.
graph::ProductType product_type(const std::string& precision, const FormatLibrary& formats);
// The same with the formats of [products].
graph::ProductType product_type(const Recipe& recipe, const FormatLibrary& formats);
// Whether --precision means a recipe of the library by this name: a type of that name comes first.
bool is_recipe_of_products(const Library& library, const std::string& precision);

// The format each parameter gets by the rules; parameters without one are absent. Vectors and frozen parameters never
// get one unless a rule names them in `values` without wildcards. Error when a rule names values or roles this model's
// family does not have. `importance`: an importance matrix is at hand.
std::map<std::string, std::pair<FormatRef, FieldSource>> formats_by_rule(const std::vector<QuantizeRule>& rules,
                                                                         const Model& model, bool importance = false);

// The same as fake quantization of a training graph.
std::vector<graph::FormatAssignment> fake_assignments(const std::vector<QuantizeRule>& rules, const Model& model);

// * and ? in `pattern`.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace lumen::model
