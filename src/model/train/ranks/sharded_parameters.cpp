#include "model/train/ranks/sharded_parameters.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "graph/ir/text.h"
#include "model/recipe/optimizer/optimizer.h"
#include "model/train/ranks/rank_graphs.h"
#include "run/engine/compile/compile.h"

namespace lumen::model::train {
namespace {

constexpr size_t kSlots = 2;  // one is used, one is exchanged

graph::Type f32_of(const ExchangedParameters::Member& m) {
  return {m.cut->whole.shape, {Scalar::f32, nullptr}};
}

// Bytes of a row, in a format or in the parameter's type.
int64_t row_bytes(const ExchangedParameters::Member& m, const graph::Type& whole, const FormatRef& coded) {
  return coded ? m.cut->columns / coded->block * coded->block_bytes : graph::byte_size(whole) / m.cut->rows;
}

graph::Type piece_type(const ExchangedParameters::Member& m, const FormatRef& coded, int rank) {
  return m.cut->part_of({m.cut->whole.shape, {Scalar::f32, coded}}, rank);
}
// Aligned bytes of a rank's rows, as numbers or in a format.
int64_t piece_room(const ExchangedParameters::Member& m, const FormatRef& coded, int rank) {
  return m.cut->rows_of(rank) == 0 ? 0 : run::aligned(graph::byte_size(piece_type(m, coded, rank)));
}

// Memory of one part of a step.
struct PartBytes {
  int64_t parameters = 0, gradients = 0, codes = 0, arrived = 0;
};
PartBytes bytes_of(const ExchangedParameters& exchanged, size_t part, int rank, int ranks) {
  PartBytes out;
  for (const ExchangedParameters::Member& m : exchanged.parts[part]) {
    if (exchanged.gathers) out.parameters += run::aligned(graph::byte_size(m.type));
    out.gradients += run::aligned(graph::byte_size(f32_of(m)));
    if (const FormatRef coded = exchanged.gathers ? exchanged_in(*m.cut, exchanged.gathered_in) : nullptr)
      for (int r = 0; r < ranks; ++r) out.codes += piece_room(m, coded, r);
    out.arrived += ranks * piece_room(m, exchanged_in(*m.cut, exchanged.reduced_in), rank);
  }
  return out;
}

size_t slots_of(const ExchangedParameters& exchanged) {
  return exchanged.overlaps ? std::min(kSlots, exchanged.parts.size()) : 1;
}

// The maximum over all parts that use the slot.
PartBytes slot_bytes(const ExchangedParameters& exchanged, size_t slot, int rank, int ranks) {
  PartBytes most;
  for (size_t k = slot; k < exchanged.parts.size(); k += slots_of(exchanged)) {
    const PartBytes own = bytes_of(exchanged, k, rank, ranks);
    most.parameters = std::max(most.parameters, own.parameters);
    most.gradients = std::max(most.gradients, own.gradients);
    most.codes = std::max(most.codes, own.codes);
    most.arrived = std::max(most.arrived, own.arrived);
  }
  return most;
}

// Members are named by position, so that equal parts have graphs of the same text.
std::vector<Cut> by_place(const std::vector<ExchangedParameters::Member>& members) {
  std::vector<Cut> out;
  for (const ExchangedParameters::Member& m : members) {
    out.push_back(*m.cut);
    out.back().whole.name = fmt::format("p{}", out.size() - 1);
  }
  return out;
}
std::string place(size_t member) {
  return fmt::format("p{}", member);
}

}  // namespace

ExchangedParameters exchanged_parameters(const LayerPlan& plan, const std::vector<Cut>& cuts,
                                         const recipe::Holding& held, ExchangedParameters how) {
  for (const LayerPlan::Part& at : plan.parts) {
    how.parts.emplace_back();
    for (const Cut& cut : cuts)
      if (std::find(at.part.parameters.begin(), at.part.parameters.end(), cut.whole.name) != at.part.parameters.end())
        how.parts.back().push_back({&cut, held.type_of(cut.whole)});
  }
  return how;
}

bool ends_with(const ExchangedParameters& exchanged, size_t part, const ExchangedParameters::Member& member) {
  for (size_t k = 0; k < part; ++k)
    for (const ExchangedParameters::Member& other : exchanged.parts[k])
      if (other.cut == member.cut) return false;
  return true;
}

ParameterMemory parameter_memory(const ExchangedParameters& exchanged, int rank, int ranks) {
  ParameterMemory out;
  int64_t arrived = 0;
  for (size_t s = 0; s < slots_of(exchanged); ++s) {
    const PartBytes slot = slot_bytes(exchanged, s, rank, ranks);
    out.parameters += slot.parameters;
    out.gradients += slot.gradients;
    out.exchanges += slot.codes;
    arrived = std::max(arrived, slot.arrived);
  }
  out.exchanges += arrived;
  std::map<std::string, int64_t> lost;
  for (const auto& part : exchanged.parts)
    for (const ExchangedParameters::Member& m : part)
      if (exchanged_in(*m.cut, exchanged.reduced_in)) lost[m.cut->whole.name] = graph::byte_size(f32_of(m));
  for (const auto& [unused, bytes] : lost) out.exchanges += bytes;
  return out;
}

ShardedParameters::ShardedParameters(run::Engine& engine, run::Communicator& ranks, ExchangedParameters exchanged,
                                     Tensors tensors, std::shared_ptr<ParameterStore> whole,
                                     std::shared_ptr<OffloadedParameters> outside)
    : engine_(engine),
      ranks_(ranks),
      exchanged_(std::move(exchanged)),
      tensors_(std::move(tensors)),
      whole_(std::move(whole)),
      outside_(std::move(outside)) {
  LUMEN_CHECK(exchanged_.gathers == !whole_);
  const int own = ranks_.rank(), size = ranks_.size();
  needs_ = parameter_memory(exchanged_, own, size);
  const auto memory = [&](int64_t bytes) { return bytes > 0 ? engine_.allocate(bytes) : nullptr; };
  int64_t arrived = 0;
  for (size_t s = 0; s < slots_of(exchanged_); ++s) {
    const PartBytes bytes = slot_bytes(exchanged_, s, own, size);
    Slot slot;
    slot.parameters = memory(bytes.parameters);
    slot.codes = memory(bytes.codes);
    slot.gradients = memory(bytes.gradients);
    slots_.push_back(std::move(slot));
    arrived = std::max(arrived, bytes.arrived);
  }
  arrived_ = memory(arrived);
  programs_.resize(exchanged_.parts.size());
  for (size_t k = 0; k < programs_.size(); ++k) compile_part(k);
  engine_.device().synchronize();  // clearing memory is not ordered with later work
  if (!exchanged_.overlaps) return;
  stream_ = ranks_.stream();
  if (!stream_) exchange_thread_ = std::make_unique<run::SerialThread>();
}

std::shared_ptr<run::Program> ShardedParameters::compile(const graph::Graph& g) {
  if (std::none_of(g.nodes.begin(), g.nodes.end(), [](const graph::Node& n) { return n.op != graph::Op::input_; }))
    return nullptr;
  std::shared_ptr<run::Program>& program = by_text_[graph::print(g)];
  if (!program) program = engine_.compile(g, {});
  return program;
}

void ShardedParameters::compile_part(size_t part) {
  const std::vector<Cut> named = by_place(exchanged_.parts[part]);
  std::vector<const Cut*> cuts;
  for (const Cut& c : named) cuts.push_back(&c);
  Programs& to = programs_[part];
  if (exchanged_.gathers) {
    to.code = compile(code_graph(cuts, ranks_.rank(), exchanged_.gathered_in));
    to.decode = compile(decode_graph(cuts, ranks_.size(), exchanged_.gathered_in));
  }
  to.encode = compile(encode_graph(cuts, exchanged_.reduced_in));
  to.sum = compile(sum_graph(cuts, ranks_.rank(), ranks_.size(), true, exchanged_.reduced_in));
  std::erase_if(cuts, [&](const Cut* c) {
    const Member& m = exchanged_.parts[part][c - named.data()];
    return m.cut->rows_of(ranks_.rank()) == 0 || !ends_with(exchanged_, part, m);
  });
  if (sums_outside() && !cuts.empty()) to.squares = compile(squares_graph(cuts, ranks_.rank()));
  for (const Member& m : exchanged_.parts[part]) {
    run::DeviceTensorRef* lost = exchanged_in(*m.cut, exchanged_.reduced_in) ? &lost_[m.cut->whole.name] : nullptr;
    if (lost && !*lost) *lost = std::make_shared<run::DeviceTensor>(engine_.device(), f32_of(m));
  }
}

run::DeviceTensorRef ShardedParameters::at(const graph::Type& type, const std::shared_ptr<std::byte>& memory,
                                           int64_t offset) const {
  return std::make_shared<run::DeviceTensor>(engine_.device(), type, memory, memory.get() + offset);
}

run::DeviceTensorRef ShardedParameters::own(const Member& m) const {
  return tensors_(m.cut->whole.name, m.cut->part_of(m.type, ranks_.rank()));
}

run::DeviceTensorRef ShardedParameters::tensor(size_t part, const std::string& name) {
  Slot& s = slot(part);
  int64_t parameters = 0, gradients = 0;
  for (const Member& m : exchanged_.parts[part]) {
    if (name == m.cut->whole.name && whole_) return whole_->tensor(part, name);
    if (name == m.cut->whole.name) {
      LUMEN_CHECK(std::cmp_equal(s.part, part) && s.is_used, "'{}' is not here", name);
      return at(m.type, s.parameters, parameters);
    }
    if (name == recipe::kGradient + m.cut->whole.name) return at(f32_of(m), s.gradients, gradients);
    parameters += run::aligned(graph::byte_size(m.type));
    gradients += run::aligned(graph::byte_size(f32_of(m)));
  }
  return nullptr;
}

// Begins an exchange, run at once or concurrently with later work; exchanges run in the order in which they are begun.
std::optional<ShardedParameters::Ticket> ShardedParameters::begin(run::SentPieces to, run::TakenPieces from,
                                                                  size_t point) {
  if (stream_) {
    stream_->follow_launches();
    ranks_.enqueue(to, from);
    stream_->mark(point);
    return point;
  }
  if (!exchange_thread_) {
    ranks_.exchange(to, from);
    return std::nullopt;
  }
  return exchange_thread_->submit([this, to = std::move(to), from = std::move(from)] { ranks_.exchange(to, from); });
}

// Launches wait on the stream; without a stream, the host waits.
void ShardedParameters::wait(std::optional<Ticket>& ticket) {
  if (!ticket) return;
  const Ticket arrived = *std::exchange(ticket, std::nullopt);
  if (stream_)
    stream_->hold_launches(arrived);
  else
    exchange_thread_->wait(arrived);
}

// An error here is reported at the end of a pass: until then other ranks still receive this rank's data, valid or not.
void ShardedParameters::attempt(const std::function<void()>& work) {
  if (failure_) return;
  try {
    work();
  } catch (const run::RankLost&) {
    throw;
  } catch (const Error& error) {
    failure_ = error;
  }
}

// Waits for the slot's exchange; the sent memory may then be reused.
void ShardedParameters::land(Slot& s) {
  wait(s.ticket);
  if (std::exchange(s.sends, false) && outside_) outside_->release(s.part);
}

void ShardedParameters::prefetch(size_t part) {
  if (whole_) return whole_->prefetch(part);
  Slot& s = slot(part);
  if (overlaps() && !s.is_used && !std::cmp_equal(s.part, part)) gather(part);
}

void ShardedParameters::acquire(size_t part) {
  if (whole_) return whole_->acquire(part);
  Slot& s = slot(part);
  LUMEN_CHECK(!s.is_used, "part {} is still here", s.part);
  if (!std::cmp_equal(s.part, part)) gather(part);
  arrive(part);
  s.is_used = true;
}

void ShardedParameters::release(size_t part) {
  if (whole_) return whole_->release(part);
  Slot& s = slot(part);
  LUMEN_CHECK(s.is_used && std::cmp_equal(s.part, part));
  s.is_used = false;
}

// Sends each rank's rows to all others.
void ShardedParameters::gather(size_t part) {
  const int own_rank = ranks_.rank(), size = ranks_.size();
  for (Slot& other : slots_) land(other);  // the same program may hold its codes
  Slot& s = slot(part);
  if (outside_) outside_->acquire(part);
  s.part = part;
  s.is_whole = false;
  s.sends = true;
  const std::vector<Member>& members = exchanged_.parts[part];
  const std::shared_ptr<run::Program>& code = programs_[part].code;
  if (code)
    attempt([&] {
      for (size_t i = 0; i < members.size(); ++i)
        if (exchanged_in(*members[i].cut, exchanged_.gathered_in) && members[i].cut->rows_of(own_rank) > 0)
          code->bind(kMaster + place(i), own(members[i]));
      code->run();
    });
  run::SentPieces to(size);
  run::TakenPieces from(size);
  int64_t whole_at = 0, code_at = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& m = members[i];
    const FormatRef coded = exchanged_in(*m.cut, exchanged_.gathered_in);
    const int64_t bytes = row_bytes(m, m.type, coded);
    if (m.cut->rows_of(own_rank) > 0) {
      const run::DeviceTensorRef source = coded ? code->result(kCoded + place(i)) : own(m);
      for (int r = 0; r < size; ++r) to[r].push_back({source->data(), m.cut->rows_of(own_rank) * bytes});
    }
    for (int r = 0; r < size; ++r) {
      if (m.cut->rows_of(r) == 0) continue;
      std::byte* const target =
          coded ? s.codes.get() + code_at : s.parameters.get() + whole_at + m.cut->first[r] * bytes;
      from[r].push_back({target, m.cut->rows_of(r) * bytes});
      if (coded) code_at += piece_room(m, coded, r);
    }
    whole_at += run::aligned(graph::byte_size(m.type));
  }
  s.ticket = begin(std::move(to), std::move(from), run::Communicator::kFreePoint + part % slots_.size());
  const size_t next = part > gathered_ ? part + 1 : part - 1;  // in the direction of the pass
  if (outside_ && next < exchanged_.parts.size()) outside_->prefetch(next);
  gathered_ = part;
}

// The sent rows are now whole parameters.
void ShardedParameters::arrive(size_t part) {
  Slot& s = slot(part);
  land(s);
  if (std::exchange(s.is_whole, true) || !programs_[part].decode) return;
  run::Program& decode = *programs_[part].decode;
  attempt([&] {
    int64_t whole_at = 0, code_at = 0;
    const std::vector<Member>& members = exchanged_.parts[part];
    for (size_t i = 0; i < members.size(); ++i) {
      const Member& m = members[i];
      const FormatRef coded = exchanged_in(*m.cut, exchanged_.gathered_in);
      const int64_t bytes = row_bytes(m, m.type, nullptr);
      for (int r = 0; r < ranks_.size() && coded; ++r) {
        if (m.cut->rows_of(r) == 0) continue;
        decode.bind(part_input(r, place(i)), at(piece_type(m, coded, r), s.codes, code_at));
        decode.bind(kHeld + part_input(r, place(i)),
                    at(m.cut->part_of(m.type, r), s.parameters, whole_at + m.cut->first[r] * bytes));
        code_at += piece_room(m, coded, r);
      }
      whole_at += run::aligned(graph::byte_size(m.type));
    }
    decode.run();
  });
}

void ShardedParameters::open_gradients(size_t part, bool) {
  if (summing_ && &slot(*summing_) == &slot(part)) finish_sums();
}

// Sends each rank's rows of all gradients to that rank.
void ShardedParameters::close_gradients(size_t part) {
  finish_sums();
  const int own_rank = ranks_.rank(), size = ranks_.size();
  const std::vector<Member>& members = exchanged_.parts[part];
  const std::shared_ptr<run::Program>& encode = programs_[part].encode;
  if (encode)
    attempt([&] {
      for (size_t i = 0; i < members.size(); ++i) {
        if (!exchanged_in(*members[i].cut, exchanged_.reduced_in)) continue;
        const std::string& name = members[i].cut->whole.name;
        encode->bind(recipe::kGradient + place(i), tensor(part, recipe::kGradient + name));
        encode->bind(kLost + place(i), lost_.at(name));
      }
      encode->run();
    });
  run::SentPieces to(size);
  run::TakenPieces from(size);
  int64_t arrived = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& m = members[i];
    const FormatRef coded = exchanged_in(*m.cut, exchanged_.reduced_in);
    const int64_t bytes = row_bytes(m, f32_of(m), coded);
    const run::DeviceTensorRef source =
        coded ? encode->result(kCoded + place(i)) : tensor(part, recipe::kGradient + m.cut->whole.name);
    const auto* const data = reinterpret_cast<const std::byte*>(source->data());
    for (int r = 0; r < size; ++r) {
      if (m.cut->rows_of(r) > 0) to[r].push_back({data + m.cut->first[r] * bytes, m.cut->rows_of(r) * bytes});
      if (m.cut->rows_of(own_rank) == 0) continue;
      from[r].push_back({arrived_.get() + arrived, m.cut->rows_of(own_rank) * bytes});
      arrived += piece_room(m, coded, own_rank);
    }
  }
  sum_ticket_ = begin(std::move(to), std::move(from), run::Communicator::kFreePoint + kSlots);
  summing_ = part;
  if (outside_) outside_->prefetch_gradients(part);
  if (!overlaps()) finish_sums();
}

void ShardedParameters::bind_reduction(size_t part) {
  const int own_rank = ranks_.rank();
  run::Program& sum = *programs_[part].sum;
  const std::vector<Member>& members = exchanged_.parts[part];
  int64_t arrived = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& m = members[i];
    if (m.cut->rows_of(own_rank) == 0) continue;
    const FormatRef coded = exchanged_in(*m.cut, exchanged_.reduced_in);
    sum.bind(recipe::kGradient + place(i),
             tensors_(recipe::kGradient + m.cut->whole.name, m.cut->part_of(f32_of(m), own_rank)));
    for (int r = 0; r < ranks_.size(); ++r) {
      sum.bind(part_input(r, place(i)), at(piece_type(m, coded, own_rank), arrived_, arrived));
      arrived += piece_room(m, coded, own_rank);
    }
  }
}

void ShardedParameters::finish_sums() {
  if (!summing_) return;
  wait(sum_ticket_);
  const size_t part = *std::exchange(summing_, std::nullopt);
  if (!programs_[part].sum) return;
  if (sums_outside()) outside_->open_gradients(part, false);
  attempt([&] {
    bind_reduction(part);
    if (stream_)
      programs_[part].sum->enqueue();  // without guards
    else
      programs_[part].sum->run();
    if (is_last_) take_squares(part);
  });
  if (sums_outside()) outside_->close_gradients(part);
}

// Sums exist for one layer at a time, so squares are taken per layer.
void ShardedParameters::take_squares(size_t part) {
  if (!programs_[part].squares) return;
  run::Program& squares = *programs_[part].squares;
  const std::vector<Member>& members = exchanged_.parts[part];
  const auto each = [&](const std::function<void(const std::string&, const Member&)>& visit) {
    for (size_t i = 0; i < members.size(); ++i)
      if (members[i].cut->rows_of(ranks_.rank()) > 0 && ends_with(exchanged_, part, members[i]))
        visit(place(i), members[i]);
  };
  each([&](const std::string& name, const Member& m) {
    const graph::Type type = m.cut->part_of(f32_of(m), ranks_.rank());
    squares.bind(recipe::kGradient + name, tensors_(recipe::kGradient + m.cut->whole.name, type));
  });
  squares.run();
  each([&](const std::string& name, const Member& m) {
    squares.result(recipe::kSquares + name)->download(&squares_[m.cut->whole.name], sizeof(float));
  });
}

std::optional<Error> ShardedParameters::end_pass() {
  finish_sums();
  for (Slot& s : slots_) land(s);
  return std::exchange(failure_, std::nullopt);
}

int64_t ShardedParameters::parameter_bytes() const {
  return needs_.parameters + (outside_ ? outside_->parameter_bytes() : 0);
}

int64_t ShardedParameters::gradient_bytes() const {
  return needs_.gradients + (outside_ ? outside_->gradient_bytes() : 0);
}

void ShardedParameters::forget_parameters() {
  for (Slot& s : slots_) {
    LUMEN_CHECK(!s.is_used);
    land(s);
    s.part = -1;
  }
}

void ShardedParameters::forget_lost() {
  for (const auto& [name, lost] : lost_) lost->clear();
}

}  // namespace lumen::model::train
