// Runs a model layer by layer over the windows of a text: only one layer's weights are on the device at a time,
// activations between layers are stored (carried.h), and inputs of the layer's weights are summed up. The text may run
// in two forms at once, "true" and "rounded", to compare them. Same text, same bits, also when a run is resumed. Proved
// by tests/model/calibrate/layer_run_test.cpp.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "graph/transform/layers.h"
#include "graph/transform/taps.h"
#include "model/arch/model.h"
#include "model/calibrate/carried.h"
#include "run/engine/engine.h"

namespace lumen::model::calibrate {

struct LayerRunOptions {
  int64_t length = 512;              // tokens per window
  int64_t batch = 1;                 // windows computed at once
  bool bos = false;                  // the first token of every window is replaced by the tokenizer's BOS
  graph::ProductType products = {};  // rounding of operands of products with parameters
  const char* function = nullptr;    // of the family; null: the watched one (calibrate.h)
};

// Sums of a tap over all windows (graph/transform/taps.h); empty where not requested.
struct TapSums {
  graph::Tap tap;    // weights by the model's names
  int64_t rows = 0;  // of all windows; for stacked weights see counts
  std::vector<float> squares, magnitudes, largest, gram, cross, counts, spread, weighed;
  std::vector<float> row_largest;  // [rows]

  // The sums of one matrix, [columns, columns]; empty where not requested, or no row reached the matrix.
  std::span<const float> gram_of(int64_t m) const { return matrix_of(gram, m); }
  std::span<const float> cross_of(int64_t m) const { return matrix_of(cross, m); }
  // The number of rows summed for matrix m.
  int64_t rows_of(int64_t m) const;

 private:
  std::span<const float> matrix_of(const std::vector<float>& sums, int64_t m) const;
};

// The tap on the input of products with a parameter; null: there is none.
const TapSums* reads_of(std::span<const TapSums> taps, const std::string& parameter);

// The results of running a part.
struct PartRun {
  std::vector<TapSums> taps;
  std::map<std::string, std::vector<float>> results;  // losses of all windows in order, of the rounded form;
                                                      // of families that predict tokens
  // By weight, with the model's names: sums over all rows of squares of the text loss's gradient for the outputs of the
  // weight's products (graph/transform/slopes.h).
  std::map<std::string, std::vector<float>> slopes;
  std::map<std::string, std::vector<float>> channels;  // likewise, by columns: sums of |g|^2 x^2, where requested
  // By parameter, likewise: the gradient of the loss, summed over all tokens.
  std::map<std::string, std::vector<float>> gradients;
};

// Optional results of a backward pass, in addition to slopes.
struct BackWants {
  bool channels = false;
  // Called after every batch with each product weight's gradient of the text loss over the batch's windows (first
  // window, count), by the model's names.
  std::function<void(int64_t, int64_t, const std::string&, std::span<const float>)> gradients;
};

class LayerRun {
 public:
  // The text: whole windows of options.length tokens. Only run() reads weights of `model`.
  LayerRun(run::Engine& engine, const arch::Model& model, std::span<const text::TokenId> text,
           const LayerRunOptions& options);
  // Switches to another text; nothing is recompiled for the same number of windows.
  void take(std::span<const text::TokenId> text);

  size_t parts() const { return cut_.parts.size(); }
  const graph::LayerPart& part(size_t i) const { return cut_.parts[i]; }
  int64_t windows() const { return windows_; }

  // A parameter's numbers as f32, by the model's name.
  using WeightOf = std::function<std::span<const float>(const std::string&)>;
  // Called after every batch with the windows done.
  using Progress = std::function<void(int64_t)>;

  // Runs a part: its inputs come from `from`, values for later parts go to `to`; either may be null where a part has
  // none, or its outputs are not needed. Error (exit 4) when a sum is not finite.
  PartRun run(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* to,
              const graph::TapKinds& kinds = {}, const Progress& progress = {});
  // The same for a text in two forms at once, with the same weights: taps are those of `from`, cross sums those of
  // (`true_from` - `from`); a part that reads only tokens has no cross sums. Writes no values.
  PartRun compare(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* true_from,
                  const graph::TapKinds& kinds, const Progress& progress = {});
  // The backward pass of a part, after all later parts: `from` has the part's inputs, `slopes` the gradients of the
  // carried values, to which the part adds. Taps are those of run().
  PartRun back(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* slopes,
               const graph::TapKinds& kinds, const Progress& progress = {}, const BackWants& wants = {});
  // The gradients of the last layer's results, starting at window `first`, windows in order.
  using Seeds = std::function<void(int64_t first, std::span<float> to)>;
  // The same with gradients of the parameters instead of slopes and taps. Without seeds, results are token losses,
  // which are summed.
  PartRun back(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* slopes, const Seeds& seeds);
  // Removes values that no part after `part` reads.
  void drop_read(size_t part, CarriedValues* values) const;
  // Flushes the values that later parts read to disk.
  void keep_written(size_t part, CarriedValues* values) const;
  // The carried values that parts up to `part` have written and later ones read.
  std::vector<int> handed_on(size_t part) const;

  const LayerRunOptions& options() const { return options_; }
  graph::Bindings bindings(int64_t windows) const;
  // Type and bytes of a carried value, by its number in LayerPart::in and out: for all windows, and for one.
  const graph::Type& carried_type(int number) const { return cut_.carried[number].type; }
  int64_t carried_bytes(int number) const;
  // Copies a part's inputs for these windows into tensors of that many windows, by the names of the part's inputs.
  void read_windows(size_t part, std::span<const int64_t> windows, CarriedValues* from,
                    const std::map<std::string, run::DeviceTensorRef>& to) const;

 private:
  struct Form;
  struct Width;
  enum class Back : uint8_t { no, slopes, gradients };
  struct Streams {
    CarriedValues *from = nullptr, *true_from = nullptr, *to = nullptr, *slopes = nullptr;
    Back back = Back::no;
    const Seeds* seeds = nullptr;
    const BackWants* wants = nullptr;  // with slopes
  };
  PartRun run(size_t part, const WeightOf& weight, const Streams& streams, const graph::TapKinds& kinds,
              const Progress& progress);
  Form& form(size_t part, const graph::TapKinds& kinds, bool twice, const Streams& streams);
  PartRun back(size_t part, const WeightOf& weight, const Streams& streams, const graph::TapKinds& kinds,
               const Progress& progress);
  void fill(const graph::LayerPart& part, const Streams& streams, const std::string& name, int64_t first, int64_t count,
            std::vector<uint8_t>* bytes) const;
  void hand_on(const graph::LayerPart& part, const Streams& streams, Width& width, int64_t first);
  Width& width(Form& form, int64_t count);

  run::Engine& engine_;
  const LayerRunOptions options_;
  const bool has_losses_;
  const int64_t vocabulary_;
  const text::TokenId begin_;  // replaces every window's first token; -1: none
  std::vector<text::TokenId> text_;
  int64_t windows_ = 0;
  graph::LayerCut cut_;
  std::map<std::string, std::shared_ptr<Form>> forms_;  // by the text of the graph
  std::set<int> sloped_;                                // carried values to whose slopes some part has added
};

}  // namespace lumen::model::calibrate
