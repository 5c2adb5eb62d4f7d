// Round-to-nearest quantization of a model: every matrix gets a format, by the target, by role, or by name; vectors
// stay f32. With an importance matrix, formats with fit(x, w) choose their scales by it. Nothing is silent: a matrix
// whose rows do not divide into the format's blocks is refused, unless the user named what to take instead, and then
// the report says so. Proved by tests/model/compress/compress_test.cpp.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "model/arch/checkpoint/write.h"
#include "model/arch/model.h"
#include "model/calibrate/importance.h"
#include "model/compress/rounding.h"
#include "model/compress/saturation.h"
#include "model/recipe/recipe.h"
#include "run/engine/engine.h"

namespace lumen::model {

struct QuantizeOptions {
  std::string target;  // a format, or a recipe with [[quantize]] rules (mixtures); case does not matter
  std::vector<std::pair<std::string, std::string>>
      tensor_types;                         // regular expression over file or parameter names -> format
  std::string output_type, embedding_type;  // by role "output" and "embedding"
  bool pure = false;                        // the target for every matrix, mixtures and roles aside
  std::vector<std::string> fallbacks;       // formats to try, in order, where the rows do not divide
  bool allow_requantize = false;            // from another lossy format
  bool leave_output = false;                // the output matrix stays as it is
  bool train_tables = false;                // of the formats used, on this model's weights (codebook.h)
  bool small_too = false;                   // also matrices that otherwise stay f32, as of routers
  // What the files have a place for: of weights beside linear layers none (the embedding stays as it is, the output
  // does without `output_type`), or weights of stacked matrices alone.
  bool linear_layers = false, stacked = false;
  std::shared_ptr<const Importance> importance;  // null: all columns count alike
};

struct QuantizedTensor {
  std::string name;  // GGUF name
  std::string from, to;
  int64_t weights = 0, bytes = 0;
  double bits = 0;       // per weight
  double error = 0;      // |x - y| / |x|, Euclidean; 0 where nothing changed
  bool weighed = false;  // the format's scales were chosen by importance
  double weighted = 0;   // the same error with every column's squares times its importance
  std::string remark;    // "rows of 896 do not divide by 256"
  Saturation loss;       // beyond rounding
  std::string loss_text;
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;
  int64_t weights = 0, bytes = 0;
  double bits = 0;
  int file_type = -1;                           // general.file_type, when the target has one
  std::string text() const;                     // a table
  std::vector<std::string> without_importance;  // GGUF names that the importance matrix does not have
  std::vector<std::string> unreached;           // "blk.3.ffn_up_exps.weight: 2 of 64 matrices", which no row reached
  std::vector<std::string> not_weighing;        // formats without fit(x, w) that an importance was given for
  std::vector<std::string> trained;             // lines about formats whose tables were trained, or could not be
  std::vector<std::string> blind;               // formats of very few bits with fit(x, w), and no importance was given
  // "'blk.0.ffn_up.weight': 3 numbers ..", a line for each tensor that lost more than rounding takes; and one for all.
  // And what importance was not used for.
  std::vector<std::string> warnings() const;
};

// Looks names up as they are, then in lower case: users write names in capitals. Error with hints when neither format
// nor mixture.
FormatRef find_format(const FormatLibrary& formats, const std::string& name);

// Small, and much depends on them (norms, biases, routers): whatever the target, they are held in f32. One row alone is
// a vector.
bool stays_f32(const Parameter& p);

// Decides without computing: format by parameter name. Absent: stays as it is.
std::map<std::string, FormatRef> choose_formats(const Model& model, const QuantizeOptions& options,
                                                QuantizeReport* report);

// Formats with tables give way to formats whose tables were trained on the weights that get them (codebook.h), one for
// all of these. What came of it is told to `report`.
void train_formats(run::Engine& engine, const Model& model, const QuantizeOptions& options,
                   std::map<std::string, FormatRef>& chosen, QuantizeReport& report, const WeightSource& source = {});

using QuantizeProgress = std::function<void(const QuantizedTensor&)>;

// Rounds weights one by one, each when its turn to be written comes.
class Quantizer {
 public:
  // Decides, and computes nothing. Error when a weight is lossy already, or importance is another model's. `model` must
  // live as long; `source` makes its weights that have their type alone.
  Quantizer(const Model& model, QuantizeOptions options, WeightSource source = {});

  // Formats with tables give way to trained ones (options.train_tables); before anything is added to the result.
  void train_tables(run::Engine& engine);
  // What is written; weights that are made anew have their type alone. Metadata may be added.
  Model& result() { return result_; }
  // Sizes; after write() what was lost as well.
  const QuantizeReport& report() const { return report_; }

  void write(run::Engine& engine, const Destination& to, const QuantizeProgress& progress = {});
  // The same in memory. Error (exit 3) when there is no room for it.
  Model in_memory(run::Engine& engine, const QuantizeProgress& progress = {});

 private:
  void lay_out();
  Weight make(PanelRounder& rounder, const Parameter& p, const QuantizeProgress& progress);

  const Model& model_;
  const QuantizeOptions options_;
  const WeightSource source_;
  std::map<std::string, FormatRef> chosen_;     // by parameter
  std::map<std::string, std::string> remarks_;  // likewise
  std::set<std::string> anew_;                  // parameters that are rounded
  Model result_;
  QuantizeReport report_;
  std::map<std::string, size_t> lines_;  // of the report, by parameter
  int64_t rounded_ = 0, largest_ = 0;    // bytes of what is made anew
};

Model quantize(run::Engine& engine, const Model& model, const QuantizeOptions& options, QuantizeReport* report,
               const QuantizeProgress& progress = {});

// All weights as f32.
std::vector<float> values_of(run::Engine& engine, const Weight& w);
Model dequantize(run::Engine& engine, const Model& model);
// Whether with_floats() takes it: f32, f16 or bf16.
bool is_float_format(const Format& f);
// All matrices decoded, and held in a float format; vectors in f32. What does not fit its range is told to `report`.
Model with_floats(run::Engine& engine, const Model& model, const FormatRef& format, QuantizeReport* report = nullptr);

}  // namespace lumen::model
