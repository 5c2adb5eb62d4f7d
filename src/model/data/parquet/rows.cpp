#include <optional>

#include "base/error.h"
#include "model/data/parquet/column.h"
#include "model/data/parquet/footer.h"
#include "model/data/parquet/parquet.h"

namespace lumen::model::data {
namespace parquet {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kElement = 32;  // bytes of a list element in addition to its text

// Assembles rows from the entries of all columns (Dremel's record assembly, on which the format is based): below a node
// that is null or empty every column has one entry with the same levels.
class RowMaker {
 public:
  RowMaker(const Footer& footer, std::vector<ColumnReader>& columns, uint64_t limit)
      : footer_(footer), columns_(columns), limit_(limit) {}

  // Sets a fault when a text is not valid UTF-8.
  ordered_json row(DataRow* out) {
    out_ = out;
    size_ = 0;
    require_all(footer_.root, [](const ColumnReader& c) { return !c.ended() && c.repetition() == 0; });
    return record(footer_.root, true);
  }

 private:
  template <typename Holds>
  void require_all(const Node& node, const Holds& holds) const {
    for (uint32_t i = node.first; i < node.end; ++i)
      if (!holds(columns_[i]))
        throw user_error("column '{}' has another number of rows than the other columns", footer_.leaves[i].name);
  }

  // Whether the entries below a node reach this definition level; all must agree.
  bool reaches(const Node& node, int level) const {
    const bool reached = columns_[node.first].definition() >= level;
    require_all(node, [&](const ColumnReader& c) { return !c.ended() && (c.definition() >= level) == reached; });
    return reached;
  }

  void pass(const Node& node) {
    for (uint32_t i = node.first; i < node.end; ++i) columns_[i].pass();
  }

  void count(uint64_t bytes) {
    size_ += bytes;
    if (size_ > limit_) throw user_error("the row takes more than {} MiB", limit_ >> 20);
  }

  ordered_json value(const Node& node) {
    if (!reaches(node, node.present)) {
      pass(node);
      return nullptr;
    }
    switch (node.kind) {
      case Node::Kind::leaf:
        return leaf(columns_[node.first]);
      case Node::Kind::record:
        return record(node, false);
      case Node::Kind::list:
        return list(node);
    }
    return nullptr;
  }

  ordered_json leaf(ColumnReader& column) {
    const Value value = column.value();
    count(value.bytes.size());
    ordered_json out;
    if (!to_json(column.leaf(), value, &out) && out_->fault.empty()) {
      out_->fault = "no valid UTF-8";
      out_->detail = column.leaf().name;
    }
    column.pass();
    return out;
  }

  ordered_json record(const Node& node, bool whole) {
    ordered_json out = ordered_json::object();
    auto& members = out.get_ref<ordered_json::object_t&>();
    for (const Node& child : node.children) {
      ordered_json member = value(child);
      // Every struct has all members of its type: members that a .jsonl line would omit are null.
      if (member.is_null() && !whole) continue;
      count(kElement + child.name.size());
      members.emplace_back(child.name, std::move(member));
    }
    return out;
  }

  ordered_json list(const Node& node) {
    ordered_json out = ordered_json::array();
    if (!reaches(node, node.element)) {
      pass(node);
      return out;
    }
    const Node& element = node.children.front();
    bool more = true;
    while (more) {
      count(kElement);
      out.push_back(value(element));
      more = columns_[node.first].repetition() == node.repeats;
      require_all(node, [&](const ColumnReader& c) {
        return c.repetition() <= node.repeats && (c.repetition() == node.repeats) == more;
      });
    }
    return out;
  }

  const Footer& footer_;
  std::vector<ColumnReader>& columns_;
  uint64_t limit_;
  uint64_t size_ = 0;
  DataRow* out_ = nullptr;
};

class Reader final : public RowReader {
 public:
  Reader(std::string_view bytes, std::string name, const ParquetLimits& limits)
      : name_(std::move(name)), held_{.page_limit = limits.page, .limit = limits.held} {
    named([&] {
      footer_ = read_footer(bytes);
      columns_.reserve(footer_.leaves.size());
      for (const Leaf& leaf : footer_.leaves) columns_.emplace_back(leaf, bytes, held_);
    });
    maker_.emplace(footer_, columns_, limits.row);
  }

  bool next(DataRow* row) override {
    while (left_ == 0) {
      if (group_ > 0) named([&] { end_group(); });
      if (group_ == footer_.groups.size()) return false;
      named([&] { begin_group(footer_.groups[group_]); });
      ++group_;
    }
    *row = {.line = ++line_};
    named([&] { row->value = maker_->row(row); });
    --left_;
    return true;
  }

 private:
  // Adds the file and the row to errors.
  template <typename Deed>
  void named(const Deed& deed) const {
    try {
      deed();
    } catch (const Error& error) {
      const std::string where = line_ > 0 ? fmt::format("{}:{}", name_, line_) : name_;
      throw Error(error.code(), fmt::format("{}: {}", where, error.what()), error.hint());
    }
  }

  void begin_group(const RowGroup& group) {
    left_ = group.rows;
    for (size_t i = 0; i < columns_.size(); ++i) {
      try {
        columns_[i].begin(group.columns[i]);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("column '{}': {}", footer_.leaves[i].name, error.what()), error.hint());
      }
    }
  }

  void end_group() const {
    for (const ColumnReader& column : columns_)
      if (!column.ended()) throw user_error("column '{}' has more rows than the footer counts", column.leaf().name);
  }

  std::string name_;
  Held held_;
  Footer footer_;
  std::vector<ColumnReader> columns_;
  std::optional<RowMaker> maker_;
  size_t group_ = 0;
  uint64_t left_ = 0, line_ = 0;
};

}  // namespace
}  // namespace parquet

std::unique_ptr<RowReader> read_parquet(std::string_view bytes, std::string name, const ParquetLimits& limits) {
  return std::make_unique<parquet::Reader>(bytes, std::move(name), limits);
}

}  // namespace lumen::model::data
