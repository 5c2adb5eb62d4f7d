// A model run layer by layer over the windows of a text: only one layer's weights are on the device at a time, what
// goes from layer to layer is kept beside (carried.h), and what the layer's weights read is summed up on the way. The
// text may go through twice at once, in a "true" and a "rounded" form, whose difference is then seen. Same text, same
// bits, however often the run is taken up again. Proved by tests/model/calibrate/layer_run_test.cpp.
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

namespace lumen::model {

struct LayerRunOptions {
  int64_t length = 512;              // tokens of a window
  int64_t batch = 1;                 // windows computed at once
  bool bos = false;                  // the first token of every window is replaced by the tokenizer's BOS
  graph::ProductType products = {};  // what operands of products with parameters are rounded to
  const char* function = nullptr;    // of the family; null: that which is watched (calibrate.h)
};

// What a tap summed up over all windows (graph/transform/taps.h); empty where it was not asked for.
struct TapSums {
  graph::Tap tap;    // weights by the model's names
  int64_t rows = 0;  // of all windows; of stacked weights see counts
  std::vector<float> squares, magnitudes, largest, gram, cross, counts, spread, weighed;
  std::vector<float> row_largest;  // [rows]

  // The sums of one matrix, [columns, columns]; empty where they were not asked for, or no row reached the matrix.
  std::span<const float> gram_of(int64_t m) const { return matrix_of(gram, m); }
  std::span<const float> cross_of(int64_t m) const { return matrix_of(cross, m); }
  // How many rows the sums of matrix m are of.
  int64_t rows_of(int64_t m) const;

 private:
  std::span<const float> matrix_of(const std::vector<float>& sums, int64_t m) const;
};

// The tap of what products with a parameter read; null: there is none.
const TapSums* reads_of(std::span<const TapSums> taps, const std::string& parameter);

// What a part did to a text.
struct PartRun {
  std::vector<TapSums> taps;
  std::map<std::string, std::vector<float>> results;  // losses, all windows one behind the other, of the rounded form;
                                                      // of families that predict tokens
  // By weight, with the model's names: sums over all rows of squares of what the text's loss gains by what products
  // with them give (graph/transform/slopes.h).
  std::map<std::string, std::vector<float>> slopes;
  std::map<std::string, std::vector<float>> channels;  // likewise, by columns: sums of |g|^2 x^2, where asked for
  // By parameter, likewise: what the loss, summed over all tokens, gains by each of its numbers.
  std::map<std::string, std::vector<float>> gradients;
};

// What going back is to find beside slopes.
struct BackWants {
  bool channels = false;
  // Behind every batch: what the text's loss gains by each weight that products read, over the windows of the batch
  // (the first one's number, and how many), by the model's names.
  std::function<void(int64_t, int64_t, const std::string&, std::span<const float>)> gradients;
};

class LayerRun {
 public:
  // The text: whole windows of options.length tokens. Weights of `model` are asked for by run() alone.
  LayerRun(run::Engine& engine, const Model& model, std::span<const TokenId> text, const LayerRunOptions& options);
  // Another text from now on; nothing is compiled again for as many windows.
  void take(std::span<const TokenId> text);

  size_t parts() const { return cut_.parts.size(); }
  const graph::LayerPart& part(size_t i) const { return cut_.parts[i]; }
  int64_t windows() const { return windows_; }

  // A parameter's numbers as f32, by the model's name.
  using WeightOf = std::function<std::span<const float>(const std::string&)>;
  // Called behind every batch with windows done.
  using Progress = std::function<void(int64_t)>;

  // Runs a part: what it reads comes from `from`, what later parts read goes to `to`; either may be null where a part
  // has none, or its outputs are not wanted. Error (exit 4) when a sum is not finite.
  PartRun run(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* to,
              const graph::TapKinds& kinds = {}, const Progress& progress = {});
  // The same of a text in two forms at once, with the same weights: taps are those of `from`, cross sums those of
  // `true_from` less `from`; there are none of a part that reads tokens alone. Nothing is handed on.
  PartRun compare(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* true_from,
                  const graph::TapKinds& kinds, const Progress& progress = {});
  // Back through a part, behind all parts after it: `from` has what the part reads, `slopes` what the loss gains by
  // each number that is carried; the part adds its own. Taps are those of run().
  PartRun back(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* slopes,
               const graph::TapKinds& kinds, const Progress& progress = {}, const BackWants& wants = {});
  // What the loss gains by numbers of the results behind the last layer, from the first one on, windows one behind the
  // other.
  using Seeds = std::function<void(int64_t first, std::span<float> to)>;
  // The same with gradients of the parameters in the place of slopes and taps. Without seeds results are losses of
  // tokens, which are summed.
  PartRun back(size_t part, const WeightOf& weight, CarriedValues* from, CarriedValues* slopes, const Seeds& seeds);
  // What no part behind `part` reads is removed.
  void drop_read(size_t part, CarriedValues* values) const;
  // What is read is handed on as it is on the disk.
  void keep_written(size_t part, CarriedValues* values) const;
  // The carried values that parts up to `part` have written and later ones read.
  std::vector<int> handed_on(size_t part) const;

  const LayerRunOptions& options() const { return options_; }
  graph::Bindings bindings(int64_t windows) const;
  // A carried value, by its number in LayerPart::in and out, of all windows and of one.
  const graph::Type& carried_type(int number) const { return cut_.carried[number].type; }
  int64_t carried_bytes(int number) const;
  // What a part reads of these windows goes into tensors for as many, by the names of the part's inputs.
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
  const TokenId begin_;  // what stands in the place of every window's first token; -1: what the text has
  std::vector<TokenId> text_;
  int64_t windows_ = 0;
  graph::LayerCut cut_;
  std::map<std::string, std::shared_ptr<Form>> forms_;  // by the text of the graph
  std::set<int> sloped_;                                // carried values whose slopes some part has added to
};

}  // namespace lumen::model
