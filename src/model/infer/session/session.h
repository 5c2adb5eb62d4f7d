// A model on a device: one sequence with its KV cache, or many in a paged KV cache. Prompts are computed in chunks,
// then single tokens. No model family is known here: caches are the states of the family's `step`. Proved by
// tests/model/infer/infer_test.cpp.
//
// May include: base, base/threads, graph/ir, graph/pass, graph/pipeline, graph/transform/by_text, model/arch,
// model/arch/adapter, model/infer/narrowing, model/infer/pictures, model/infer/recurrent, number/library, run/engine,
// run/engine/compile, run/engine/program.
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
#include "model/infer/narrowing/further_rows.h"
#include "model/infer/pictures/positions.h"
#include "model/infer/recurrent/recurrent.h"
#include "model/infer/session/handed.h"
#include "model/infer/session/near_places.h"
#include "run/engine/engine.h"

namespace lumen::run {
class ParameterUploads;
}

namespace lumen::model::infer {

// Weights of a model on a device, shared by sessions and evaluations, with adapters. All adapters together give one
// low-rank update per weight, and whole weights that replace the model's. Alternatively several sets of adapters, one
// for each sequence of a batch (graph::kTextSets).
class LoadedModel {
 public:
  LoadedModel(run::Engine& engine, const arch::Model& model, std::span<const arch::ScaledAdapter> adapters = {});
  // Sets cannot replace whole weights (can_differ). Functions take batches of sequences.
  LoadedModel(run::Engine& engine, const arch::Model& model, std::span<const arch::AdapterSet> sets);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;
  run::Engine& engine() const { return engine_; }
  const arch::Model& model() const { return model_; }
  // Tensors for the inputs of the functions: the parameters of the model and of its adapters. Blocks until they are
  // uploaded, so compile before calling it.
  const std::map<std::string, run::DeviceTensorRef>& weights() const;
  int64_t weight_bytes() const;                        // of all weights; does not block
  int64_t sets() const { return identities_.size(); }  // number of adapter sets; each sequence uses one
  // A hash of a set's adapters and their scales; whole weights are part of the model's identity.
  const std::string& identity(int64_t set = 0) const { return identities_.at(set); }
  // Sessions made from now on read pictures: tokens whose ids are those of rows in pictures(). Their steps are the
  // family's `step_seeing` and `step_many_seeing`. Error if it has none.
  void read_pictures();
  bool reads_pictures() const { return reads_pictures_; }
  PictureBook& pictures() const { return *pictures_; }
  // A function of the family, with the adapters applied.
  graph::Graph function(const std::string& name) const;

 private:
  void hold_change(const std::string& name, const arch::WeightChange& change, const graph::Shape& rows);

  run::Engine& engine_;
  std::optional<arch::Model> changed_;  // the model with whole weights of adapters
  const arch::Model& model_;
  std::map<std::string, run::DeviceTensorRef> weights_;
  std::shared_ptr<run::ParameterUploads> uploads_;
  std::vector<graph::LowRank> adapted_;
  std::vector<std::string> identities_;  // by set
  std::vector<graph::TextLowRank> adapted_by_text_;
  bool reads_pictures_ = false;
  std::unique_ptr<PictureBook> pictures_ = std::make_unique<PictureBook>();
};

// Whether rows of logits are reduced on the device (narrowing.h): `apart`: if the device is not the host and the
// vocabulary is large; `always`: whenever possible.
enum class Narrow : uint8_t { never, apart, always };

struct SessionOptions {
  static constexpr int64_t kMostPositions = int64_t{1} << 31;  // graphs use 32-bit positions
  int64_t context = 0;                                         // cache length; 0: the model's context
  int64_t chunk = 512;                                         // most tokens of a prefill chunk
  int64_t page = 16;                                           // positions per page of a paged KV cache
  bool exact = false;                                          // f32 activations throughout
  // Logits of a token have the same bits however many tokens and sequences are computed in a step, and whatever part of
  // its prompt was cached. Processors only; prompts and many sequences take longer.
  bool invariant = false;
  Narrow narrow = Narrow::never;  // for callers that sample tokens from LogitRow; useless for others
  // Whether prompts and next tokens of several sequences share steps (ManySession::feed_mixed). nullopt: yes on devices
  // other than the host, where each step reads all weights.
  std::optional<bool> mixed = {};
  // Recurrent layers read prompts step by step, and not in chunks, whose sums depend on where a chunk begins:
  // `invariant` then holds for them, too.
  bool stepwise = false;
  // Formats of the KV cache: of the states of the family's step that are named keys, and of the others (values). Null:
  // as given by the model's file, otherwise f32.
  FormatRef keys = nullptr, values = nullptr;
};

// Compile options of a family's step, except for its symbols: formats of weights and caches.
run::CompileOptions step_options(const arch::Model& model, const graph::Graph& step, const SessionOptions& session);
// The same for the model's device.
run::CompileOptions step_options(const LoadedModel& loaded, const graph::Graph& step, const SessionOptions& session);

// The format of a state of the step with this name; null: f32.
FormatRef cache_format_of(std::string_view state, const SessionOptions& session);

// Numbers of a picture's row for this model: its embedding, and what is added to the outputs of the first layers.
int64_t picture_width(const arch::Model& model);

// Error if an id is not below the model's vocabulary.
void check_tokens(const arch::Model& model, std::span<const text::TokenId> tokens);
// The same where rows of pictures are tokens as well.
void check_tokens(const LoadedModel& loaded, std::span<const text::TokenId> tokens);

// Fills in defaults. Error if the options do not fit the model.
SessionOptions session_options(const arch::Model& model, SessionOptions given);
// Numbers of tokens for which a session compiles steps.
std::vector<int64_t> session_widths(const SessionOptions& options);
// Widths of the steps that return the logits of all of up to `most` tokens, ascending; a single token uses the normal
// step.
std::vector<int64_t> wide_widths(const SessionOptions& options, int64_t most);

class Session {
 public:
  Session(const LoadedModel& loaded, SessionOptions options);

  // Compiles the first step of a prompt of so many tokens and the step of one token, while weights are still uploaded.
  void prepare(int64_t tokens);
  // Appends tokens; returns the logits of the last one (valid until the next call). Error when the context is full.
  std::span<const float> feed(std::span<const text::TokenId> tokens);
  // The same as a row that is valid until the next call. It is reduced on the device if `asked` allows that and
  // SessionOptions::narrow selects it.
  LogitRow feed_row(std::span<const text::TokenId> tokens, const Asked& asked);
  // Appends a few tokens; returns the logits of each of them, one row after the other.
  std::span<const float> feed_all(std::span<const text::TokenId> tokens);
  // The logits of feed_all, or with `last` of feed, on the device: `see` is called with some rows at a time, dense
  // [count, vocabulary], which are complete and valid until it returns.
  void feed_on_device(std::span<const text::TokenId> tokens, bool last,
                      const std::function<void(const void* rows, int64_t count)>& see);
  // Makes `tokens` the sequence: the common prefix stays cached, the rest is computed. Returns logits like feed.
  std::span<const float> become(std::span<const text::TokenId> tokens);
  // Context shift: removes `drop` tokens after the first `keep`; later tokens move up. These are recomputed, so that
  // the result equals that of a sequence without the removed tokens.
  void shift(int64_t keep, int64_t drop);
  const std::vector<text::TokenId>& tokens() const { return tokens_; }
  int64_t position() const { return tokens_.size(); }
  int64_t context() const { return options_.context; }
  int64_t vocabulary() const { return loaded_.model().integer("vocab"); }
  // Truncates the sequence. Entries of sliding-window caches may be lost, and recurrent states go back to the last mark
  // before `position`: what is missing is recomputed with the next tokens.
  void rewind(int64_t position);
  // Keeps a copy of the recurrent states, so that a later rewind to this position, or to one soon behind it, computes
  // little again. Prompts and feed_all leave marks by themselves. Nothing happens for families without such states.
  void mark();
  // Bytes of the caches.
  int64_t cache_bytes() const { return cache_bytes_; }
  // The largest |x| in states with names of this ending ("keys"), by layer. The states must be f32, and all computed
  // chunks must have had one of session_widths(). Error for other caches.
  std::vector<double> largest_kept(std::string_view ending) const;
  // Kernels of each compiled step, with the one-token step last.
  std::string explain(const run::Ceilings* ceilings = nullptr) const;
  void forget_times();  // resets the times in explain()

 private:
  struct Width {  // the step compiled for `tokens` tokens, with logits of `rows` of them
    int64_t tokens, rows;
    std::shared_ptr<run::Program> program;
    run::DeviceTensorRef tokens_in;
    Handed rows_in, asked_in, scales_in;
    std::map<std::string, Handed> seen_in;
    std::shared_ptr<run::Program> sum;  // sums the logits; compiled on first use
  };
  void read_again();
  RecurrentStates recurrent() const;
  Width compiled(int64_t tokens, int64_t rows);
  void bind(Width& width);  // blocks until the weights are uploaded
  Width& width(int64_t tokens, int64_t rows);
  int64_t tokens_of_step(int64_t left) const;  // of the width that the next step has if so many tokens are left
  void check_room(int64_t count) const;
  void run(Width& width, std::span<const text::TokenId> tokens, const Asked& asked = {});
  Width& read(std::span<const text::TokenId> tokens, const Asked& asked);
  std::span<const float> fetch(const Width& width);
  void read_rows(std::span<const text::TokenId> tokens, const std::function<void(Width&, int64_t)>& see);
  void require_finite_on_device(Width& width);

  const LoadedModel& loaded_;
  SessionOptions options_;
  graph::Graph graph_;
  graph::Bindings symbols_;  // all but T and R
  std::optional<Narrowing> narrowing_;
  std::optional<NearPlaces> near_;  // slots of sliding-window layers
  std::map<std::string, run::DeviceTensorRef> states_;
  std::vector<std::string> recurrent_;  // names of recurrent states
  StateMarks marks_;
  run::DeviceTensorRef position_in_, count_in_, place_in_, near_positions_in_;
  std::deque<Width> widths_;  // compiled on first use
  std::optional<FurtherRows> further_;
  int64_t cache_bytes_ = 0, work_bytes_ = 0;
  std::vector<float> logits_;
  std::vector<text::TokenId> tokens_;
  PicturePositions places_;  // of the tokens in the caches, where pictures are read
  int64_t position_ = 0;     // number of tokens in the caches: all of them, except after some rewinds
};

}  // namespace lumen::model::infer
