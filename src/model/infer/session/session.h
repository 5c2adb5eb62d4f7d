// One running sequence: a model on a device with a KV cache. Prompts go through in chunks, then token by token.
// Nothing here knows the family: the cache is whatever states the family's `step` has. Proved by
// tests/model/infer/infer_test.cpp.
//
// May include: base, graph/elaborate, graph/ir, graph/pipeline, graph/transform/by_text, lang, model/arch,
// model/arch/adapter, model/arch/family, model/infer/sample, number/library, run/engine, run/engine/compile,
// run/engine/program.
// Offers: finite.h, forecast.h, session_many.h, step_plan.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/pipeline/pipeline.h"
#include "graph/transform/by_text/by_text.h"
#include "model/arch/adapter/adapter_sets.h"
#include "model/arch/model.h"
#include "model/infer/session/handed.h"
#include "model/infer/session/narrowing.h"
#include "model/infer/session/near_places.h"
#include "run/engine/engine.h"

namespace lumen::run {
class ParameterUploads;
}

namespace lumen::model {

// Weights of a model on a device, shared by sessions and evaluations; and adapters beside them, all of which together
// are one change of low rank for each weight, and whole weights in place of the model's. Or several sets of adapters,
// of which each sequence of a batch has one (graph::kTextSets).
class LoadedModel {
 public:
  LoadedModel(run::Engine& engine, const Model& model, std::span<const ScaledAdapter> adapters = {});
  // Whole weights cannot differ (can_differ). Functions are those of batches.
  LoadedModel(run::Engine& engine, const Model& model, std::span<const AdapterSet> sets);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  run::Engine& engine() const { return engine_; }
  const Model& model() const { return model_; }
  // What inputs of the functions are bound to: the model's parameters and the adapters'. Waits until they are on the
  // device: who compiles does so before.
  const std::map<std::string, run::DeviceTensorRef>& weights() const;
  int64_t weight_bytes() const;                        // of all those; waits for nothing
  int64_t sets() const { return identities_.size(); }  // of adapters, of which a sequence may have one
  // A hash of what a set's adapters hold, and their scales; whole weights are the model's.
  const std::string& identity(int64_t set = 0) const { return identities_.at(set); }
  // A function of the family, with the adapters.
  graph::Graph function(const std::string& name) const;

 private:
  void hold_change(const std::string& name, const WeightChange& change, const graph::Shape& rows);

  run::Engine& engine_;
  std::optional<Model> changed_;  // by whole weights of adapters
  const Model& model_;
  std::map<std::string, run::DeviceTensorRef> weights_;
  std::shared_ptr<run::ParameterUploads> uploads_;
  std::vector<graph::LowRank> adapted_;
  std::vector<std::string> identities_;  // of the sets
  std::vector<graph::TextLowRank> adapted_by_text_;
};

// Whether rows of logits are narrowed on the device (narrowing.h): where it is another than the host's and the
// vocabulary is large, or wherever they can be.
enum class Narrow : uint8_t { never, apart, always };

struct SessionOptions {
  static constexpr int64_t kMostPositions = int64_t{1} << 31;  // they are numbers of 32 bits in the graphs
  int64_t context = 0;                                         // cache length; 0: the model's context
  int64_t chunk = 512;                                         // tokens of a prompt computed at once, at most
  int64_t page = 16;                                           // positions of a page, where sequences share a cache
  bool exact = false;                                          // f32 activations throughout
  Narrow narrow = Narrow::never;  // for who chooses tokens by rows; others have no use for it
  // Whether prompts and next tokens of several sequences share steps (ManySession::feed_mixed); not given: where the
  // device is another than the host's, which reads all weights for each step.
  std::optional<bool> mixed = {};
  // How the cache is held: states of the family's step that are called keys, and the others (values). Null: as the
  // model's file says, else f32.
  FormatRef keys = nullptr, values = nullptr;
};

// What a family's step is compiled with, but for its symbols: weights and caches in their formats.
run::CompileOptions step_options(const Model& model, const graph::Graph& step, const SessionOptions& session);

// Error when an id is not below the model's vocabulary: there is no such row of its embedding.
void check_tokens(const Model& model, std::span<const TokenId> tokens);

// Defaults filled in; Error when nothing fits.
SessionOptions session_options(const Model& model, SessionOptions given);
// How many tokens a session's steps may compute at once.
std::vector<int64_t> session_widths(const SessionOptions& options);
// And those that give the logits of all of up to `most` tokens, in rising order; a single one goes the usual way.
std::vector<int64_t> wide_widths(const SessionOptions& options, int64_t most);

class Session {
 public:
  Session(const LoadedModel& loaded, SessionOptions options);

  // Appends tokens; returns the logits behind the last one (valid until the next call). Error when the context is full.
  std::span<const float> feed(std::span<const TokenId> tokens);
  // The same as a row that is valid until the next call, narrowed for who asks so where the options say so.
  LogitRow feed_row(std::span<const TokenId> tokens, const Asked& asked);
  // Returns the logits behind every one of a few tokens, one row after the other.
  std::span<const float> feed_all(std::span<const TokenId> tokens);
  // The logits of feed_all, or with `last` of feed, which stay on the device: `see` gets some rows after the other,
  // dense [count, vocabulary], that are done when it is called and last until it returns.
  void feed_on_device(std::span<const TokenId> tokens, bool last,
                      const std::function<void(const void* rows, int64_t count)>& see);
  // The sequence becomes `tokens`: the prefix that both share is kept, the rest is computed. Returns logits as feed
  // does.
  std::span<const float> become(std::span<const TokenId> tokens);
  // Makes room: `drop` tokens behind the first `keep` are forgotten, and those behind them move up. They are computed
  // anew, so that the result is that of a sequence which never had them.
  void shift(int64_t keep, int64_t drop);
  const std::vector<TokenId>& tokens() const { return tokens_; }
  int64_t position() const { return tokens_.size(); }
  int64_t context() const { return options_.context; }
  int64_t vocabulary() const { return loaded_.model().integer("vocab"); }
  // Forgets what came later. Where layers remember the latest only, the rest may have to be read again: that happens
  // with the next tokens.
  void rewind(int64_t position);
  // Bytes of the caches.
  int64_t cache_bytes() const { return cache_bytes_; }
  // The largest |x| that states with names of this ending ("keys") hold, layer by layer. They are held in f32, and
  // nothing was read whose number of tokens is not one of session_widths(). Error for other caches.
  std::vector<double> largest_kept(std::string_view ending) const;
  // Kernels of each step that was compiled, the one-token step last.
  std::string explain(const run::Ceilings* ceilings = nullptr) const;
  void forget_times();  // explain() counts from here

 private:
  struct Width {  // the step compiled for `tokens` tokens at once, and logits of `rows` of them
    int64_t tokens, rows;
    std::shared_ptr<run::Program> program;
    run::DeviceTensorRef tokens_in;
    Handed rows_in, asked_in, scales_in;
    std::shared_ptr<run::Program> sum;  // of the rows of logits; made when first needed
  };
  void read_again();
  Width make(int64_t tokens, int64_t rows);
  Width& width(int64_t tokens, int64_t rows);
  Width& width_for(int64_t left);
  void check_room(int64_t count) const;
  void run(Width& width, std::span<const TokenId> tokens, const Asked& asked = {});
  Width& read(std::span<const TokenId> tokens, const Asked& asked);
  std::span<const float> fetch(const Width& width);
  void read_rows(std::span<const TokenId> tokens, const std::function<void(Width&, int64_t)>& see);
  void require_finite_on_device(Width& width);

  const LoadedModel& loaded_;
  SessionOptions options_;
  graph::Graph graph_;
  graph::Bindings symbols_;  // all but T and R
  std::optional<Narrowing> narrowing_;
  std::optional<NearPlaces> near_;  // of layers that remember the latest only
  std::map<std::string, run::DeviceTensorRef> states_;
  run::DeviceTensorRef position_in_, place_in_, near_positions_in_;
  std::deque<Width> widths_;  // made when first needed
  int64_t cache_bytes_ = 0, work_bytes_ = 0;
  std::vector<float> logits_;
  std::vector<TokenId> tokens_;
  int64_t position_ = 0;  // tokens that are in the caches: all, but after some rewinds
};

}  // namespace lumen::model
