#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "run/device/device.h"
#include "run/ranks/gpu_transport.h"
#include "run/ranks/ranks.h"

namespace lumen::run {
namespace {

int64_t bytes_of(const auto& pieces) {
  int64_t sum = 0;
  for (const auto& p : pieces) sum += p.bytes;
  return sum;
}

int64_t bytes_in(std::span<const float> numbers) {
  return std::ssize(numbers) * int64_t{sizeof(float)};
}

// Maps a group's pieces to the ranks of the whole communicator.
template <class Pieces>
Pieces among_all(const Pieces& of_members, const std::vector<int>& members, int size) {
  Pieces out(size);
  for (size_t i = 0; i < members.size(); ++i) out[members[i]] = of_members[i];
  return out;
}

}  // namespace

// A group's transport on top of the whole communicator's.
class GroupTransport : public Transport {
 public:
  GroupTransport(std::shared_ptr<Communicator> all, std::vector<int> members)
      : all_(std::move(all)), members_(std::move(members)) {}
  std::string describe() const override { return all_->carrier_->describe(); }
  void exchange(const SentPieces& to, const TakenPieces& from) override {
    all_->carrier_->exchange(among_all(to, members_, all_->size()), among_all(from, members_, all_->size()));
  }
  bool serves_any_thread() const override { return all_->serves_any_thread(); }
  void check() override { all_->check(); }
  void abort(const std::string& why) noexcept override { all_->abort(why); }

 private:
  std::shared_ptr<Communicator> all_;
  std::vector<int> members_;
};

std::shared_ptr<Communicator> Communicator::group(std::shared_ptr<Communicator> all, std::vector<int> members) {
  const auto own = std::find(members.begin(), members.end(), all->rank());
  LUMEN_CHECK(own != members.end() && std::is_sorted(members.begin(), members.end()) && members.back() < all->size());
  RankPlace place;
  place.rank = own - members.begin();
  place.size = members.size();
  auto out = std::make_shared<Communicator>(
      place, members.size() == 1 ? nullptr : std::make_unique<GroupTransport>(all, members));
  out->all_ = std::move(all);
  out->members_ = std::move(members);
  return out;
}

RankLost::RankLost(int rank, const std::string& why, bool has_told)
    : Error(Exit::user, fmt::format("rank {} is gone: {}", rank, why),
            "the newest checkpoint is whole: --resume goes on from it, with as many ranks or with fewer"),
      rank_(rank),
      has_told_(has_told) {}

Communicator::Communicator(RankPlace place, std::unique_ptr<Transport> carrier)
    : place_(place), carrier_(std::move(carrier)) {
  LUMEN_CHECK(place.size >= 1 && place.rank >= 0 && place.rank < place.size);
  LUMEN_CHECK(carrier_ || place.size == 1);
}

Communicator::~Communicator() = default;

std::string Communicator::describe() const {
  if (!carrier_) return "1 rank";
  return fmt::format("{} ranks by {}{}", size(), carrier_->describe(),
                     carries_.empty() ? "" : fmt::format(", their GPUs by {}", carries_));
}

void Communicator::check() {
  if (carrier_) carrier_->check();
}

void Communicator::abort(const std::string& why) noexcept {
  if (direct_) direct_->abort(why);
  if (carrier_) carrier_->abort(why);
}

void Communicator::barrier() {
  (void)all_gather(std::string());
}

std::vector<std::string> Communicator::all_gather(const std::string& mine) {
  return gather_texts(mine, -1);
}

std::vector<std::string> Communicator::gather(const std::string& mine, int root) {
  return gather_texts(mine, root);
}

// Gathers to all ranks if `root` is not a rank. First the lengths of the texts, then the texts.
std::vector<std::string> Communicator::gather_texts(const std::string& mine, int root) {
  std::vector<std::string> all(size());
  all[rank()] = mine;
  if (size() == 1) return all;
  const auto takes = [&](int r) { return root < 0 || r == root; };
  std::vector<int64_t> lengths(size());
  const int64_t own = std::ssize(mine);
  SentPieces to(size());
  TakenPieces from(size());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (takes(r)) to[r] = {{&own, sizeof own}};
    if (takes(rank())) from[r] = {{&lengths[r], sizeof lengths[r]}};
  }
  carrier_->exchange(to, from);
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (takes(r)) to[r] = {{mine.data(), own}};
    if (!takes(rank())) continue;
    if (lengths[r] < 0 || lengths[r] > kLongestText)
      throw RankLost(r, fmt::format("it announces {} bytes", lengths[r]));
    all[r].resize(lengths[r]);
    from[r] = {{all[r].data(), lengths[r]}};
  }
  carrier_->exchange(to, from);
  if (!takes(rank())) return {};
  return all;
}

void Communicator::broadcast(std::span<std::byte> bytes, int root) {
  if (size() == 1) return;
  SentPieces to(size());
  TakenPieces from(size());
  if (rank() == root) {
    for (int r = 0; r < size(); ++r)
      if (r != root) to[r] = {{bytes.data(), std::ssize(bytes)}};
  } else {
    from[root] = {{bytes.data(), std::ssize(bytes)}};
  }
  carrier_->exchange(to, from);
}

void Communicator::all_reduce(std::span<double> numbers) {
  const std::string mine(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
  const std::vector<std::string> all = all_gather(mine);
  for (size_t i = 0; i < numbers.size(); ++i) {
    double sum = 0;
    for (int r = 0; r < size(); ++r) {
      LUMEN_CHECK(all[r].size() == mine.size(), "ranks reduce different numbers");
      double one = 0;
      std::memcpy(&one, all[r].data() + i * sizeof one, sizeof one);
      sum = r == 0 ? one : sum + one;
    }
    numbers[i] = sum;
  }
}

void Communicator::use(Device& device, const std::string& name) {
  device_ = &device;
  if (size() > 1 && !device.reads_host_memory()) direct_ = open_gpu_transport(*this, device, name, &carries_);
}

void Communicator::exchange(const SentPieces& to, const TakenPieces& from) {
  LUMEN_CHECK(std::ssize(to) == size() && std::ssize(from) == size());
  if (all_) return all_->exchange(among_all(to, members_, all_->size()), among_all(from, members_, all_->size()));
  if (direct_) return direct_->exchange(to, from);
  if (!device_ || device_->reads_host_memory()) {
    if (device_) device_->synchronize();
    PieceWalk<SentPiece> own(to[rank()]);
    PieceWalk<TakenPiece> taken(from[rank()]);
    LUMEN_CHECK(own.left() == taken.left());
    while (own.left() > 0) {
      const int64_t step = std::min(own.next().bytes, taken.next().bytes);
      if (own.next().data != taken.next().data) std::memmove(taken.next().data, own.next().data, step);
      own.advance(step);
      taken.advance(step);
    }
    if (size() == 1) return;
    SentPieces others = to;
    TakenPieces theirs = from;
    others[rank()].clear();
    theirs[rank()].clear();
    return carrier_->exchange(others, theirs);
  }
  exchange_through_host(to, from);
}

Device::Stream* Communicator::stream() {
  if (all_) return all_->stream();
  return direct_ ? direct_->stream() : nullptr;
}

void Communicator::enqueue(const SentPieces& to, const TakenPieces& from) {
  LUMEN_CHECK(std::ssize(to) == size() && std::ssize(from) == size());
  if (all_) return all_->enqueue(among_all(to, members_, all_->size()), among_all(from, members_, all_->size()));
  LUMEN_CHECK(direct_, "exchanges of these ranks are work of no stream");
  direct_->enqueue(to, from);
}

void Communicator::begin_between_launches(const SentPieces& to, const TakenPieces& from, size_t ticket) {
  LUMEN_CHECK(ticket < kTickets, "{} exchanges at once", ticket + 1);
  stream()->follow_launches();
  enqueue(to, from);
  stream()->mark(ticket);
}

void Communicator::await(size_t ticket) {
  stream()->hold_launches(ticket);
}

// Device memory without the vendor's library: copied to the host, exchanged, and copied back.
void Communicator::exchange_through_host(const SentPieces& to, const TakenPieces& from) {
  std::vector<std::vector<std::byte>> out(size()), in(size());
  SentPieces sent(size());
  TakenPieces taken(size());
  for (int r = 0; r < size(); ++r) {
    out[r].resize(bytes_of(to[r]));
    in[r].resize(bytes_of(from[r]));
    int64_t at = 0;
    for (const SentPiece& p : to[r]) {
      if (p.bytes > 0) device_->copy_out(out[r].data() + at, p.data, p.bytes);
      at += p.bytes;
    }
    if (r == rank()) {
      LUMEN_CHECK(out[r].size() == in[r].size());
      in[r] = out[r];
      continue;
    }
    sent[r] = {{out[r].data(), std::ssize(out[r])}};
    taken[r] = {{in[r].data(), std::ssize(in[r])}};
  }
  if (carrier_) carrier_->exchange(sent, taken);
  for (int r = 0; r < size(); ++r) {
    int64_t at = 0;
    for (const TakenPiece& p : from[r]) {
      if (p.bytes > 0) device_->copy_in(p.data, in[r].data() + at, p.bytes);
      at += p.bytes;
    }
  }
}

void Communicator::all_gather(void* blocks, std::span<const int64_t> bytes) {
  LUMEN_CHECK(std::ssize(bytes) == size());
  SentPieces to(size());
  TakenPieces from(size());
  auto* at = reinterpret_cast<std::byte*>(blocks);
  const std::byte* own = at;
  for (int r = 0; r < rank(); ++r) own += bytes[r];
  for (int r = 0; r < size(); ++r) {
    if (r != rank()) {
      to[r] = {{own, bytes[rank()]}};
      from[r] = {{at, bytes[r]}};
    }
    at += bytes[r];
  }
  exchange(to, from);
}

void Communicator::broadcast(void* memory, int64_t bytes, int root) {
  SentPieces to(size());
  TakenPieces from(size());
  if (rank() != root) from[root] = {{memory, bytes}};
  for (int r = 0; r < size(); ++r)
    if (rank() == root && r != root) to[r] = {{memory, bytes}};
  exchange(to, from);
}

void Communicator::reduce_scatter(const std::vector<std::span<const float>>& numbers, std::span<float> to) {
  LUMEN_CHECK(std::ssize(numbers) == size() && numbers[rank()].size() == to.size());
  std::vector<std::vector<float>> parts(size(), std::vector<float>(to.size()));
  SentPieces sent(size());
  TakenPieces taken(size());
  for (int r = 0; r < size(); ++r) {
    sent[r] = {{numbers[r].data(), bytes_in(numbers[r])}};
    taken[r] = {{parts[r].data(), bytes_in(to)}};
  }
  exchange(sent, taken);
  for (size_t i = 0; i < to.size(); ++i) {
    float sum = parts[0][i];
    for (int r = 1; r < size(); ++r) sum += parts[r][i];
    to[i] = sum;
  }
}

void Communicator::all_reduce(std::span<float> numbers) {
  std::vector<std::span<const float>> parts(size());
  std::vector<int64_t> bytes(size());
  const auto first = [&](int64_t r) { return std::ssize(numbers) * r / size(); };
  for (int r = 0; r < size(); ++r) {
    parts[r] = numbers.subspan(first(r), first(r + 1) - first(r));
    bytes[r] = bytes_in(parts[r]);
  }
  std::vector<float> own(parts[rank()].size());
  reduce_scatter(parts, own);
  std::copy(own.begin(), own.end(), numbers.begin() + first(rank()));
  all_gather(numbers.data(), bytes);
}

}  // namespace lumen::run
