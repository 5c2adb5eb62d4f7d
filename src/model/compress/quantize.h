// Round-to-nearest quantization of a model: every matrix gets a format by the target, by role, or by name; vectors stay
// f32. With an importance matrix, formats with fit(x, w) use it to choose scales. No silent fallback: a matrix whose
// rows do not divide into the format's blocks is refused, unless the user named fallbacks, which are reported. Proved
// by tests/model/compress/compress_test.cpp.
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

namespace lumen::model::compress {

struct QuantizeOptions {
  std::string target;  // a format, or a recipe with [[quantize]] rules (mixtures); case does not matter
  std::vector<std::pair<std::string, std::string>>
      tensor_types;                         // regular expression over file or parameter names -> format
  std::string output_type, embedding_type;  // by role "output" and "embedding"
  bool pure = false;                        // the target for every matrix, without mixtures and roles
  std::vector<std::string> fallbacks;       // formats to try, in order, where the rows do not divide
  bool allow_requantize = false;            // from another lossy format
  bool leave_output = false;                // keeps the output matrix's type
  bool train_tables = false;                // of the formats used, on this model's weights (codebook.h)
  bool small_too = false;                   // also matrices that otherwise stay f32, such as routers
  // Limits of the file type. linear_layers: only linear layers may have formats (the embedding is unchanged, and
  // without `output_type` so is the output matrix); stacked: only stacked matrices may.
  bool linear_layers = false, stacked = false;
  std::shared_ptr<const calibrate::Importance> importance;  // null: all columns have equal weight
};

struct QuantizedTensor {
  std::string name;  // GGUF name
  std::string from, to;
  int64_t weights = 0, bytes = 0;
  double bits = 0;       // per weight
  double error = 0;      // |x - y| / |x|, Euclidean; 0 where nothing changed
  bool weighed = false;  // importance chose the format's scales
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
  std::vector<std::string> without_importance;  // GGUF names missing from the importance matrix
  std::vector<std::string> unreached;           // "blk.3.ffn_up_exps.weight: 2 of 64 matrices" without calibration rows
  std::vector<std::string> not_weighing;        // formats without fit(x, w), although importance was given
  std::vector<std::string> trained;             // lines about formats with trained tables, or why not
  std::vector<std::string> blind;               // formats of very few bits with fit(x, w) but without importance
  // "'blk.0.ffn_up.weight': 3 numbers ..", a line for each tensor with losses beyond rounding, and one in total. Also
  // lists the unused importance.
  std::vector<std::string> warnings() const;
};

// Looks names up as given, then in lower case: users write names in capitals. Error with hints when it is neither a
// format nor a mixture.
FormatRef find_format(const FormatLibrary& formats, const std::string& name);

// Small but sensitive parameters (norms, biases, routers) stay f32 whatever the target. A single row is a vector.
bool stays_f32(const arch::Parameter& p);

// Chooses formats by parameter name, without computing. Absent: unchanged.
std::map<std::string, FormatRef> choose_formats(const arch::Model& model, const QuantizeOptions& options,
                                                QuantizeReport* report);

// Replaces formats with tables by formats whose tables are trained on the weights that use them (codebook.h), one for
// all of these weights. The outcome is added to `report`.
void train_formats(run::Engine& engine, const arch::Model& model, const QuantizeOptions& options,
                   std::map<std::string, FormatRef>& chosen, QuantizeReport& report,
                   const arch::WeightSource& source = {});

using QuantizeProgress = std::function<void(const QuantizedTensor&)>;

// Rounds weights one by one, as they are written.
class Quantizer {
 public:
  // Chooses formats, and computes nothing. Error when a weight is lossy already, or the importance is another model's.
  // `model` must outlive this; `source` computes weights of which it has only the type.
  Quantizer(const arch::Model& model, QuantizeOptions options, arch::WeightSource source = {});

  // Replaces formats with tables by trained ones (options.train_tables); call before adding to the result.
  void train_tables(run::Engine& engine);
  // The model to be written; weights to be rounded have only their type. Metadata may be added.
  arch::Model& result() { return result_; }
  // Sizes; after write() also the losses.
  const QuantizeReport& report() const { return report_; }

  void write(run::Engine& engine, const arch::Destination& to, const QuantizeProgress& progress = {});
  // The same in memory. Error (exit 3) when there is not enough memory.
  arch::Model in_memory(run::Engine& engine, const QuantizeProgress& progress = {});

 private:
  void lay_out();
  arch::Weight make(PanelRounder& rounder, const arch::Parameter& p, const QuantizeProgress& progress);

  const arch::Model& model_;
  const QuantizeOptions options_;
  const arch::WeightSource source_;
  std::map<std::string, FormatRef> chosen_;     // by parameter
  std::map<std::string, std::string> remarks_;  // likewise
  std::set<std::string> anew_;                  // parameters to be rounded
  arch::Model result_;
  QuantizeReport report_;
  std::map<std::string, size_t> lines_;  // index in the report, by parameter
  int64_t rounded_ = 0, largest_ = 0;    // bytes of rounded weights
};

arch::Model quantize(run::Engine& engine, const arch::Model& model, const QuantizeOptions& options,
                     QuantizeReport* report, const QuantizeProgress& progress = {});

// All weights as f32.
std::vector<float> values_of(run::Engine& engine, const arch::Weight& w);
arch::Model dequantize(run::Engine& engine, const arch::Model& model);
// Whether with_floats() accepts the format: f32, f16 or bf16.
bool is_float_format(const Format& f);
// All matrices decoded to a float format; vectors in f32. Values beyond its range are reported in `report`.
arch::Model with_floats(run::Engine& engine, const arch::Model& model, const FormatRef& format,
                        QuantizeReport* report = nullptr);

}  // namespace lumen::model::compress
