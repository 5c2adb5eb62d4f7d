// Processes of one distributed run, each a rank: on one host or on several, on CPUs or on GPUs. All communication is
// one operation, exchange(): bytes from every rank to every other. Sums are computed from it in rank order, so that
// they have the same bits for any arrival order and any transport. All other ranks notice a lost rank within seconds
// and throw RankLost instead of waiting for ever. Proved by tests/run/ranks/ranks_test.cpp.
//
// May include: base, base/sealed, run/device, run/device/choose.
// Offers: environment.h, launch.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "run/ranks/transport.h"

namespace lumen::run {

class Device;

// This process's rank.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks on this host
};

class Communicator {
 public:
  // `carrier` transfers bytes of this process's memory.
  Communicator(RankPlace place, std::unique_ptr<Transport> carrier);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // A subgroup: `members`, ranks of `all` in ascending order including this one, become ranks 0, 1, .. . It uses the
  // transports of `all`, for GPU memory too. Groups without a common member do not wait for each other.
  static std::shared_ptr<Communicator> group(std::shared_ptr<Communicator> all, std::vector<int> members);

  const RankPlace& place() const { return place_; }
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  int local_rank() const { return place_.local_rank; }
  int local_size() const { return place_.local_size; }
  std::string describe() const;  // "4 ranks by shared memory"

  // Whether other threads may call exchange(), one at a time.
  bool serves_any_thread() const { return !carrier_ || carrier_->serves_any_thread(); }

  // Collectives on small host data. Every rank must make the same calls in the same order.
  void barrier();
  // All ranks' texts, indexed by rank.
  std::vector<std::string> all_gather(const std::string& mine);
  // The same on rank `root`; empty on the others.
  std::vector<std::string> gather(const std::string& mine, int root);
  void broadcast(std::span<std::byte> bytes, int root);
  // Sums each number over all ranks, in rank order.
  void all_reduce(std::span<double> numbers);

  // Uses a device's memory from here on: the GPU vendor's library transfers it if available (`carries` names it),
  // otherwise it goes through this process's memory. `name`: the user's name of the device, "cuda:1".
  void use(Device& device, const std::string& name);
  const std::string& carries() const { return carries_; }
  // `to[r]` is sent to rank r, whose `from[this rank]` has pieces of the same sizes. Pieces for the rank itself are
  // copied.
  void exchange(const SentPieces& to, const TakenPieces& from);
  // If a stream transfers GPU memory: that stream, and exchange() enqueued on it without a wait. Null otherwise.
  Device::Stream* stream();
  void enqueue(const SentPieces& to, const TakenPieces& from);
  // Starts after all launches so far; later launches do not wait for it until await(ticket). A ticket is below
  // kTickets.
  void begin_between_launches(const SentPieces& to, const TakenPieces& from, size_t ticket);
  void await(size_t ticket);
  static constexpr size_t kTickets = 64;
  static constexpr size_t kFreePoint = kTickets;  // the first of the stream's points free for other use
  // All-gather of consecutive blocks; each rank's own block is in place already. `bytes[r]`: size of rank r's block.
  void all_gather(void* blocks, std::span<const int64_t> bytes);
  void broadcast(void* memory, int64_t bytes, int root);
  // numbers[r] is this rank's contribution to rank r, `to.size()` numbers; `to` becomes their sum in rank order. The
  // numbers are in memory that this process reads (GPUs sum by kernels, model/train/ranks).
  void reduce_scatter(const std::vector<std::span<const float>>& numbers, std::span<float> to);
  void all_reduce(std::span<float> numbers);

  // Sends the others the reason why this rank ends; they throw RankLost at once.
  void abort(const std::string& why) noexcept;
  // Error (RankLost) if a rank is lost.
  void check();

  static constexpr int64_t kLongestText = int64_t{1} << 36;  // largest message of a rank, in bytes

 private:
  friend class GroupTransport;
  std::vector<std::string> gather_texts(const std::string& mine, int root);
  void exchange_through_host(const SentPieces& to, const TakenPieces& from);

  RankPlace place_;
  std::unique_ptr<Transport> carrier_, direct_;
  Device* device_ = nullptr;
  std::string carries_;
  std::shared_ptr<Communicator> all_;  // of a group: the communicator it is part of
  std::vector<int> members_;
};

}  // namespace lumen::run
