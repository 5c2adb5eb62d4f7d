// Grid kernels: every lane of a block has an Evaluator; all active lanes execute an instruction before the next one
// begins. Any order of lanes between barriers must give the same result, which traces of shared memory check.
// Asynchronous copies take effect when they are waited for, and leave garbage until then.
// Proved by tests/kernel/loop/loop_grid_test.cpp.
#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <map>

#include "base/check.h"
#include "kernel/loop/eval/evaluator.h"
#include "kernel/loop/fragment.h"
#include "kernel/loop/rules.h"
#include "kernel/loop/text.h"

namespace lumen::loop {

std::string Traces::touch(int64_t offset, int64_t bytes, bool writes, int lane, Epoch epoch) {
  const int wave = lane / wave_;
  for (int64_t i = offset; i < offset + bytes; ++i) {
    Mark& m = marks_[i];
    if (m.writer != kNone && m.writer != lane && !apart(epoch, wave, m.write_epoch, m.writer / wave_))
      return fmt::format("lane {} meets what lane {} wrote to byte {} without a barrier", lane, m.writer, i);
    if (writes && m.reader != kNone && m.reader != lane && !apart(epoch, wave, m.read_epoch, m.read_wave))
      return fmt::format("lane {} writes byte {}, which another lane reads without a barrier", lane, i);
    if (writes) {
      m.write_epoch = epoch;
      m.writer = lane;
      continue;
    }
    const bool fresh = m.reader == kNone || m.read_epoch.block != epoch.block;
    const bool alone = fresh || (m.read_wave == wave && (m.read_epoch != epoch || m.reader == lane));
    m.reader = alone ? lane : kSeveral;
    m.read_wave = fresh || m.read_wave == wave ? wave : kSeveral;
    m.read_epoch = epoch;
  }
  return {};
}

namespace {

using Active = std::vector<int>;  // lanes, ascending

constexpr uint8_t kRubbish = 0xCD;

// The bits [bit, bit + count) of a record, at most 64.
uint64_t bits_at(const std::vector<uint8_t>& record, int64_t bit, int count) {
  uint64_t x = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t at = bit + i;
    x |= static_cast<uint64_t>(record[at / 8] >> (at % 8) & 1) << i;
  }
  return x;
}
void put_bits(std::vector<uint8_t>& record, int64_t bit, int count, uint64_t x) {
  for (int i = 0; i < count; ++i) {
    const int64_t at = bit + i;
    uint8_t& byte = record[at / 8];
    byte = (byte & ~(1U << (at % 8))) | (x >> i & 1) << (at % 8);
  }
}

ScalarValue scalar_of(Scalar s, uint64_t bits) {
  uint8_t bytes[8];
  std::memcpy(bytes, &bits, 8);
  return read_scalar(s, bytes);
}

class Block {
 public:
  Block(const Kernel& k, std::span<const std::span<uint8_t>> buffers, const RowLookup& rows, int wave)
      : k_(k), rows_(rows), wave_(wave), storage_(k.buffer_count) {
    const int lanes = block_lanes(k);
    for (int i = 0; i < lanes; ++i) {
      lanes_.emplace_back(k, rows, i);
      lanes_.back().bind(buffers);
      all_.push_back(i);
    }
    copies_.resize(lanes_.size());
    reads_.resize(lanes_.size());
  }

  // One iteration of the grid loop.
  Status run(const Instr& top, int64_t number) {
    for (const Instr& instr : k_.body.code)
      if (&instr != &top) step(instr, all_);
    const int64_t counter = lanes_[0].integer(top.operands[0]) + number * top.step;
    for (Evaluator& lane : lanes_) lane.value(top.regions[0].counter).assign(1, ScalarValue{0, counter});
    region(top.regions[0], all_);
    for (const Evaluator& lane : lanes_)
      if (lane.status.code != kGuardNone) return lane.status;
    return {};
  }

 private:
  void region(const Region& r, const Active& active) {
    for (const Instr& instr : r.code) step(instr, active);
  }

  void step(const Instr& instr, const Active& active) {
    switch (instr.op) {
      case Op::loop_:
        return loop(instr, active);
      case Op::branch_:
        return branch(instr, active);
      case Op::barrier_:
        LUMEN_CHECK(active.size() == lanes_.size(), "a barrier that some lanes do not reach");
        ++epoch_;
        for (Evaluator& lane : lanes_) lane.epoch = {epoch_, 0};
        return;
      case Op::wave_barrier_:
        return wave_barrier(active);
      case Op::alloc_:
        if (instr.space != Space::shared) break;
        return share(instr);
      case Op::lane_id_:
        for (const int i : active) lanes_[i].value(instr.result).assign(1, ScalarValue{0, i % wave_});
        return;
      case Op::wave_shuffle_:
        return wave_shuffle(instr, active);
      case Op::load_matrix_:
        return load_matrix(instr, active);
      case Op::ready_:
        for (const int i : active) lanes_[i].value(instr.result) = lanes_[i].value(instr.operands[0]);
        return;
      case Op::copy_:
      case Op::copy_together_:
        return copy(instr, active);
      case Op::commit_:
        for (const int i : active) instr.flow == Flow::copies ? copies_[i].close() : reads_[i].close();
        return;
      case Op::wait_:
        for (const int i : active)
          if (instr.flow == Flow::copies)
            wait(i, instr.groups);
          else if (instr.flow == Flow::products)
            while (reads_[i].closed.size() > static_cast<size_t>(instr.groups)) reads_[i].closed.pop_front();
        return;
      case Op::product_:
      case Op::inst_:
        if (const Function& f = lanes_[0].meaning(instr); f.collective) return together(instr, f, active);
        break;
      default:
        break;
    }
    for (const int i : active) lanes_[i].step(instr);
  }

  void wave_barrier(const Active& active) {
    for (size_t first = 0; first < active.size(); first += wave_) {
      const size_t last = first + wave_ - 1;
      LUMEN_CHECK(last < active.size() && active[first] % wave_ == 0 && active[last] == active[first] + wave_ - 1,
                  "lanes of a wave meet and some are not there");
    }
    for (const int i : active) ++lanes_[i].epoch.wave;
  }

  void loop(const Instr& instr, const Active& active) {
    const Region& body = instr.regions[0];
    if (instr.kind == LoopKind::lane) {
      LUMEN_CHECK(active.size() == lanes_.size(), "a lane loop that some lanes do not reach");
      for (const int i : active) lanes_[i].value(body.counter).assign(1, ScalarValue{0, i});
      return region(body, active);
    }
    const auto bound = [&](int i, size_t which) { return lanes_[i].integer(instr.operands[which]); };
    for (int64_t trip = 0;; ++trip) {
      Active here;
      for (const int i : active)
        if (trip < trip_count(bound(i, 0), bound(i, 1), instr.step)) here.push_back(i);
      if (here.empty()) return;
      for (const int i : here) lanes_[i].value(body.counter).assign(1, ScalarValue{0, bound(i, 0) + trip * instr.step});
      region(body, here);
    }
  }

  void branch(const Instr& instr, const Active& active) {
    for (const bool wanted : {true, false}) {
      Active here;
      for (const int i : active)
        if ((lanes_[i].integer(instr.operands[0]) != 0) == wanted) here.push_back(i);
      if (!here.empty()) region(instr.regions[wanted ? 0 : 1], here);
    }
  }

  void share(const Instr& instr) {
    const size_t buffer = instr.buffer;
    storage_[buffer].assign(instr.bytes, kRubbish);
    traces_.insert_or_assign(instr.buffer, Traces(storage_[buffer].size(), wave_));
    for (Evaluator& lane : lanes_) lane.share(instr.buffer, storage_[buffer], &traces_.at(instr.buffer));
  }

  // All or none of the lanes of each group of `size` must take part.
  void need_whole(const Instr& instr, const Active& active, int size) const {
    LUMEN_CHECK(static_cast<int>(lanes_.size()) % size == 0, "{} lanes are no whole groups of {} in: {}", lanes_.size(),
                size, print(instr));
    for (size_t i = 0; i < active.size(); ++i) {
      const size_t first = i / size * size;
      LUMEN_CHECK(active[first] % size == 0 && active[i] == active[first] + static_cast<int>(i - first) &&
                      (active.size() - first) >= static_cast<size_t>(size),
                  "some lanes of {} do not take part in: {}", size, print(instr));
    }
  }

  void wave_shuffle(const Instr& instr, const Active& active) {
    need_whole(instr, active, wave_);
    std::vector<Lanes> got;
    for (const int i : active) {
      const int64_t from = lanes_[i].integer(instr.operands[1]);
      LUMEN_CHECK(from >= 0 && from < wave_, "lane {} of a wave of {} in: {}", from, wave_, print(instr));
      got.push_back(lanes_[i / wave_ * wave_ + from].value(instr.operands[0]));
    }
    for (size_t i = 0; i < active.size(); ++i) lanes_[active[i]].value(instr.result) = std::move(got[i]);
  }

  // Row r of the instruction's fragment is at the offset of the wave's lane r.
  void load_matrix(const Instr& instr, const Active& active) {
    const Function& meaning = lanes_[0].meaning(instr);
    LUMEN_CHECK(meaning.collective, "row {} loads no matrix", instr.row);
    const Collective& c = *meaning.collective;
    const Fragment& f = c.operands[0].fragment;
    const int64_t row_bytes = int64_t{f.columns} * f.bits / 8, lane_bytes = f.lane_bits / 8,
                  element = scalar_bytes(instr.type.scalar);
    LUMEN_CHECK(lane_bytes == element * instr.type.lanes && f.rows == c.lanes, "row {} does not yield {}", instr.row,
                print(instr.type));
    need_whole(instr, active, c.lanes);
    for (size_t at = 0; at < active.size(); at += c.lanes) {
      const int first = active[at];
      std::vector<uint8_t> record(lane_bytes * c.lanes);
      for (int r = 0; r < f.rows; ++r) {
        Evaluator& lane = lanes_[first + r];
        const uint8_t* p =
            lane.access(instr, instr.buffer, lane.integer(instr.operands[0]), row_bytes, row_bytes, false);
        const std::vector<uint8_t> row(p, p + row_bytes);
        for (int64_t i = 0; i < f.columns; ++i)
          put_bits(record, f.bit_of(r * f.columns + i), f.bits, bits_at(row, i * f.bits, f.bits));
      }
      const uint8_t* p = record.data();
      for (int lane = 0; lane < c.lanes; ++lane) {
        Lanes& to = lanes_[first + lane].value(instr.result);
        to.clear();
        for (int i = 0; i < instr.type.lanes; ++i, p += element) to.push_back(read_scalar(instr.type.scalar, p));
      }
    }
  }

  // Operations in flight, in commit groups.
  template <typename What>
  struct Groups {
    std::vector<What> open;
    std::deque<std::vector<What>> closed;
    void close() { closed.push_back(std::exchange(open, {})); }
  };

  struct Copy {
    const Instr* instr;
    int64_t to, from;
    bool exists;  // else zeros
  };

  void copy(const Instr& instr, const Active& active) {
    const int align = instr.bytes;
    const bool together = instr.op == Op::copy_together_;
    for (const int i : active) {
      LUMEN_CHECK(!together || lanes_[i].integer(instr.operands[0]) == lanes_[active[0]].integer(instr.operands[0]),
                  "lanes that copy together do so to one place: {}", print(instr));
      const int64_t count = instr.operands.size() > 2 ? lanes_[i].integer(instr.operands[2]) : instr.bytes;
      LUMEN_CHECK(count == 0 || count == instr.bytes, "{} bytes of a copy: {}", count, print(instr));
      const int64_t to = lanes_[i].integer(instr.operands[0]) + (together ? i * instr.bytes : 0);
      const Copy c{&instr, to, lanes_[i].integer(instr.operands[1]), count > 0};
      if (c.exists) lanes_[i].access(instr, instr.from, c.from, instr.bytes, align, false);
      need_free(instr, c.to);
      std::memset(lanes_[i].access(instr, instr.buffer, c.to, instr.bytes, align, true), kRubbish, instr.bytes);
      copies_[i].open.push_back(c);
    }
  }

  // Products in flight read their panels; the lane that leads a group records them.
  struct Reading {
    BufferId buffer;
    int64_t from, to;
  };

  void need_free(const Instr& instr, int64_t to) const {
    const auto compare = [&](const std::vector<Reading>& all) {
      for (const Reading& x : all)
        LUMEN_CHECK(x.buffer != instr.buffer || to + instr.bytes <= x.from || to >= x.to,
                    "a copy to byte {} of what a product under way reads: {}", to, print(instr));
    };
    for (const Groups<Reading>& r : reads_) {
      compare(r.open);
      std::ranges::for_each(r.closed, compare);
    }
  }

  void wait(int i, size_t groups) {
    for (; copies_[i].closed.size() > groups; copies_[i].closed.pop_front())
      for (const Copy& c : copies_[i].closed.front()) {
        const Instr& instr = *c.instr;
        uint8_t* to = lanes_[i].access(instr, instr.buffer, c.to, instr.bytes, 1, true);
        if (c.exists)
          std::memcpy(to, lanes_[i].access(instr, instr.from, c.from, instr.bytes, 1, false), instr.bytes);
        else
          std::memset(to, 0, instr.bytes);
      }
  }

  // Element `e` of an operand of the group of lanes that begins at `first`.
  uint64_t element(const Instr& instr, const Collective::Operand& o, size_t which, const std::vector<uint8_t>& record,
                   int64_t e, int first) {
    const Fragment& f = o.fragment;
    if (!o.in_memory) {
      const uint64_t x = bits_at(record, f.bit_of(e), f.bits);
      for (int c = 1; c < f.copies; ++c)
        LUMEN_CHECK(bits_at(record, f.bit_of(e) + c * f.copy_bits, f.bits) == x,
                    "lanes that must hold the same element {} of operand {} do not in: {}", e, which, print(instr));
      return x;
    }
    const BufferId buffer = o.side == Collective::Side::a ? instr.buffer : instr.from;
    const int64_t offset = lanes_[first].integer(instr.operands[which]);
    int64_t byte = offset + f.bit_of(e) / 8;
    if (f.swizzle > 0) byte ^= ((byte >> 7) % f.swizzle) * 16;
    uint8_t bytes[8] = {};
    Reading& reading = reading_[o.side == Collective::Side::a ? 0 : 1];
    reading = {buffer, std::min(reading.from, byte), std::max(reading.to, byte + f.bits / 8)};
    std::memcpy(bytes, lanes_[first].access(instr, buffer, byte, f.bits / 8, 1, false), f.bits / 8);
    uint64_t x = 0;
    std::memcpy(&x, bytes, 8);
    return x;
  }

  // The registers of a group of lanes as one record.
  std::vector<uint8_t> record_of(ValueId v, const Collective& c, const Fragment& f, int first) {
    const VType t = k_.value_types[v];
    const int64_t bytes = scalar_bytes(t.scalar);
    LUMEN_CHECK(bytes * t.lanes * 8 == f.lane_bits, "a lane's share is {} bits, not {}", f.lane_bits,
                bytes * t.lanes * 8);
    std::vector<uint8_t> record(bytes * t.lanes * c.lanes);
    uint8_t* p = record.data();
    for (int lane = 0; lane < c.lanes; ++lane)
      for (const ScalarValue& x : lanes_[first + lane].value(v)) {
        write_scalar(t.scalar, p, x);
        p += bytes;
      }
    return record;
  }

  void together(const Instr& instr, const Function& f, const Active& active) {
    const Collective& c = *f.collective;
    need_whole(instr, active, c.lanes);
    LUMEN_CHECK(c.operands.size() == instr.operands.size() && f.params.size() == instr.operands.size(),
                "row {} takes {} operands", instr.row, c.operands.size());
    for (size_t at = 0; at < active.size(); at += c.lanes) group(instr, f, c, active[at]);
  }

  void group(const Instr& instr, const Function& f, const Collective& c, int first) {
    constexpr int64_t kNothing = std::numeric_limits<int64_t>::max();
    for (Reading& r : reading_) r = {-1, kNothing, 0};
    std::vector<std::vector<uint8_t>> records;
    for (size_t i = 0; i < c.operands.size(); ++i)
      records.push_back(c.operands[i].in_memory ? std::vector<uint8_t>{}
                                                : record_of(instr.operands[i], c, c.operands[i].fragment, first));
    const auto row = [&](size_t i, int64_t number) {
      const Fragment& fragment = c.operands[i].fragment;
      const VType t = f.body.value_types[f.params[i]];
      Lanes out;
      for (int64_t e = 0; e < t.lanes; ++e)
        out.push_back(
            scalar_of(t.scalar, element(instr, c.operands[i], i, records[i], number * fragment.columns + e, first)));
      return out;
    };
    std::vector<std::vector<Lanes>> rows(c.operands.size());
    for (size_t i = 1; i < c.operands.size(); ++i)
      for (int64_t n = 0; n < (c.operands[i].side == Collective::Side::a ? c.m : c.n); ++n)
        rows[i].push_back(row(i, n));
    const Fragment& result = c.operands[0].fragment;
    const Scalar s = f.body.value_types[f.result].scalar;
    std::vector<uint8_t> out(records[0].size());
    Evaluator one(f.body, rows_);
    for (int m = 0; m < c.m; ++m)
      for (int n = 0; n < c.n; ++n) {
        const int64_t e = int64_t{m} * c.n + n;
        std::vector<Lanes> operands{{scalar_of(s, element(instr, c.operands[0], 0, records[0], e, first))}};
        for (size_t i = 1; i < c.operands.size(); ++i)
          operands.push_back(rows[i][c.operands[i].side == Collective::Side::a ? m : n]);
        uint8_t bytes[8] = {};
        write_scalar(s, bytes, one.call(f, std::move(operands))[0]);
        uint64_t x = 0;
        std::memcpy(&x, bytes, 8);
        for (int copy = 0; copy < result.copies; ++copy)
          put_bits(out, result.bit_of(e) + copy * result.copy_bits, result.bits, x);
      }
    if (instr.op == Op::product_)
      for (const Reading& r : reading_)
        if (r.buffer >= 0) reads_[first].open.push_back(r);
    const size_t bytes = scalar_bytes(instr.type.scalar);
    const uint8_t* p = out.data();
    for (int lane = 0; lane < c.lanes; ++lane) {
      Lanes& to = lanes_[first + lane].value(instr.result);
      to.clear();
      for (int i = 0; i < instr.type.lanes; ++i, p += bytes) to.push_back(read_scalar(instr.type.scalar, p));
    }
  }

  const Kernel& k_;
  const RowLookup& rows_;
  const int wave_;
  std::deque<Evaluator> lanes_;
  Active all_;
  std::vector<std::vector<uint8_t>> storage_;  // shared, by buffer
  std::map<BufferId, Traces> traces_;
  std::vector<Groups<Copy>> copies_;  // by lane
  std::vector<Groups<Reading>> reads_;
  Reading reading_[2] = {};  // of the current instruction, one for each side
  int64_t epoch_ = 0;
};

}  // namespace

Status eval_grid(const Kernel& k, std::span<const std::span<uint8_t>> buffers, const RowLookup& rows, int wave) {
  const Instr* top = top_loop(k);
  Status status;
  for (int64_t i = 0; i < count_tasks(k); ++i) {
    const Status of_block = Block(k, buffers, rows, wave).run(*top, i);
    if (status.code == kGuardNone) status = of_block;
  }
  return status;
}

}  // namespace lumen::loop
