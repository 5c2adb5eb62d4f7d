#include "model/train/ranks/tensor_parts.h"

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"

namespace lumen::model::train {
namespace {

// A tensor's bytes as [outer, units of the split axis, bytes of a unit]; formats with row fields are two such pieces.
struct Piece {
  int64_t whole_at = 0, part_at = 0, outer = 1, bytes = 1;
  int64_t numbers = 1;  // of the axis, in one unit
};

std::vector<Piece> pieces_of(const graph::Type& type, const graph::Split& split, int ranks) {
  int64_t before = 1, behind = 1;
  for (int d = 0; d < std::ssize(type.shape); ++d) {
    if (d < split.axis) before *= type.shape[d].number();
    if (d > split.axis) behind *= type.shape[d].number();
  }
  const FormatRef& f = type.element.format;
  if (!f) return {{0, 0, before, behind * scalar_bytes(type.element.scalar), 1}};
  const int64_t columns = type.shape.back().number(), rows = graph::elements(type.shape).number() / columns;
  if (split.axis + 1 == std::ssize(type.shape)) return {{0, 0, rows, f->block_bytes, f->block}};
  const BlobLayout whole = blob_layout(*f, rows, columns), part = blob_layout(*f, rows / ranks, columns);
  const int64_t row_units = behind / columns;  // rows below the axis
  std::vector<Piece> out = {{0, 0, before, row_units * whole.row_stride, 1}};
  if (f->row_bytes > 0)
    out.push_back(
        {whole.section[ordinal(Level::row)], part.section[ordinal(Level::row)], before, row_units * f->row_bytes, 1});
  return out;
}

// Calls `visit` with the offsets in the whole and in the part, and the number of bytes.
template <class Visit>
void for_each_chunk(const graph::Type& type, const graph::Split& split, int ranks, int rank, const Visit& visit) {
  for (const Piece& p : pieces_of(type, split, ranks)) {
    int64_t whole_at = p.whole_at, part_at = p.part_at;
    for (int64_t o = 0; o < p.outer; ++o)
      for (const int64_t section : split.sections) {
        const int64_t chunk = section / ranks / p.numbers * p.bytes;
        visit(whole_at + rank * chunk, part_at, chunk);
        whole_at += section / p.numbers * p.bytes;
        part_at += chunk;
      }
  }
}

void refuse(bool is_asked, const std::string& what, const std::string& hint) {
  if (is_asked) throw Error(Exit::usage, fmt::format("--tensor-parallel: {}", what), hint);
}

}  // namespace

int data_ranks(const recipe::Recipe& recipe, int ranks) {
  const int64_t tensor = recipe.tensor_parallel;
  if (tensor == 1 && recipe.sequence_parallel)
    throw Error(Exit::usage, "--sequence-parallel is for ranks that hold one model",
                "it goes with --tensor-parallel, whose ranks then deal tokens between their products");
  if (tensor == 1) return ranks;
  if (ranks % tensor != 0)
    throw Error(Exit::usage, fmt::format("--tensor-parallel {} does not divide {} ranks", tensor, ranks),
                "this many neighbouring ranks hold one model together: --ranks must be a multiple of it");
  refuse(recipe.shard == "parameters", "--shard parameters needs layers' parameters in one place",
         "--shard gradients works with it");
  refuse(!recipe.eval_tasks.empty() || !recipe.samples.empty(),
         "tasks and samples during training need all parameters in one place",
         "run them on the trained model, or on a checkpoint");
  refuse(recipe.recompute == "auto", "--recompute auto lets ranks compute different steps",
         "--recompute layers, or an amount of memory, is the same for all");
  refuse(!recipe.quantize.empty(), "[[quantize]] rules need whole matrices", "--shard gradients works with them");
  refuse(recipe.ship.ships(), "an adapter inside the quantization needs whole matrices",
         "--shard gradients works with it");
  refuse(recipe.adapter.trains() && recipe.adapter.has_magnitudes(), "magnitudes of an adapter need whole matrices",
         "--shard gradients works with them");
  refuse(recipe.products.weight_scale == "predicted", "predicted scales need whole matrices",
         "[products] with delayed or fitted scales goes with it");
  refuse(recipe.products.learns(), "learned scales need whole matrices",
         "[products] with delayed or fitted scales goes with it");
  return ranks / tensor;
}

std::string refusal_to_cut(const graph::Type& whole, const graph::Split& split, int ranks) {
  const FormatRef& f = whole.element.format;
  if (!f) return {};
  if (f->tile_bytes > 0 || f->tensor_bytes > 0) return fmt::format("{} has fields of more than a row", f->name);
  if (split.axis + 1 < std::ssize(whole.shape)) return {};
  if (f->row_bytes > 0) return fmt::format("{} has fields of whole rows, and the columns are dealt", f->name);
  for (const int64_t section : split.sections)
    if (section / ranks % f->block != 0)
      return fmt::format("{} columns of one rank are no whole blocks of {}", section / ranks, f->name);
  return {};
}

graph::Type part_type(const graph::Type& whole, const graph::Split& split, int ranks) {
  return {graph::local_shape(whole.shape, split, ranks), whole.element};
}

std::vector<uint8_t> part_bytes(const graph::Type& whole, const graph::Split& split, int ranks, int rank,
                                std::span<const uint8_t> bytes) {
  std::vector<uint8_t> out(graph::byte_size(part_type(whole, split, ranks)));
  for_each_chunk(whole, split, ranks, rank, [&](int64_t whole_at, int64_t part_at, int64_t count) {
    std::memcpy(out.data() + part_at, bytes.data() + whole_at, count);
  });
  return out;
}

void place_part(const graph::Type& whole, const graph::Split& split, int ranks, int rank, std::span<const uint8_t> part,
                std::span<uint8_t> bytes) {
  for_each_chunk(whole, split, ranks, rank, [&](int64_t whole_at, int64_t part_at, int64_t count) {
    std::memcpy(bytes.data() + whole_at, part.data() + part_at, count);
  });
}

const graph::Split* TensorParts::split_of(const std::string& name) const {
  const auto found = partition_.inputs.find(name);
  return found == partition_.inputs.end() ? nullptr : &found->second;
}

graph::Type TensorParts::whole_type(const std::string& name, const graph::Type& own) const {
  graph::Type out = own;
  if (const graph::Split* split = split_of(name))
    out.shape[split->axis] = graph::Dim(own.shape[split->axis].number() * partition_.ranks);
  return out;
}

graph::Type TensorParts::own_type(const std::string& name, const graph::Type& whole) const {
  const graph::Split* const split = split_of(name);
  return split ? part_type(whole, *split, partition_.ranks) : whole;
}

std::vector<uint8_t> TensorParts::own_part(const std::string& name, const graph::Type& whole,
                                           std::span<const uint8_t> bytes) const {
  const graph::Split* const split = split_of(name);
  if (!split) return {bytes.begin(), bytes.end()};
  return part_bytes(whole, *split, partition_.ranks, group_->rank(), bytes);
}

std::vector<uint8_t> TensorParts::gathered(const std::string& name, const graph::Type& whole,
                                           std::span<const uint8_t> own) {
  const graph::Split* const split = split_of(name);
  if (!split) return {own.begin(), own.end()};
  const std::vector<std::string> all = group_->all_gather({reinterpret_cast<const char*>(own.data()), own.size()});
  std::vector<uint8_t> out(graph::byte_size(whole));
  for (int r = 0; r < partition_.ranks; ++r)
    place_part(whole, *split, partition_.ranks, r, {reinterpret_cast<const uint8_t*>(all[r].data()), all[r].size()},
               out);
  return out;
}

run::Exchange TensorParts::exchange(bool overlaps) {
  run::Exchange out;
  const bool is_enqueued = group_->stream() != nullptr;
  out.begin = [group = group_, is_enqueued, overlaps](graph::Moves moves, const void* from, void* to, int64_t bytes,
                                                      size_t ticket) {
    const auto* const own = reinterpret_cast<const std::byte*>(from);
    auto* const all = reinterpret_cast<std::byte*>(to);
    run::SentPieces sent(group->size());
    run::TakenPieces taken(group->size());
    for (int r = 0; r < group->size(); ++r) {
      const int64_t at = moves == graph::Moves::gather ? 0 : r * bytes;
      sent[r] = {{own + at, bytes}};
      taken[r] = {{all + r * bytes, bytes}};
    }
    if (!is_enqueued) return group->exchange(sent, taken);
    group->begin_between_launches(sent, taken, ticket);
    if (!overlaps) group->await(ticket);
  };
  if (is_enqueued) out.await = [group = group_](size_t ticket) { group->await(ticket); };
  return out;
}

RankGrid grid_of(const std::shared_ptr<run::Communicator>& all, const recipe::Recipe& recipe) {
  if (!all) return {};
  const int tensor = recipe.tensor_parallel, data = data_ranks(recipe, all->size());
  if (tensor == 1) return {all, nullptr};
  RankGrid out;
  std::vector<int> neighbours, others;
  for (int r = 0; r < tensor; ++r) neighbours.push_back(all->rank() / tensor * tensor + r);
  for (int r = 0; r < data; ++r) others.push_back(all->rank() % tensor + r * tensor);
  out.tensor = run::Communicator::group(all, neighbours);
  if (data > 1) out.data = run::Communicator::group(all, others);
  return out;
}

}  // namespace lumen::model::train
