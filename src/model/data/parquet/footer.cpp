#include "model/data/parquet/footer.h"

#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/ordinal.h"
#include "model/data/parquet/thrift.h"
#include "model/text/unicode/unicode.h"

namespace lumen::model::data::parquet {
namespace {

using Type = Thrift::Type;

constexpr std::string_view kMagic = "PAR1", kEncrypted = "PARE";
constexpr size_t kTail = 8;  // the footer's length and the magic
constexpr int kDeepest = 32;
constexpr size_t kMostColumns = 10000, kLongestName = 1024;

// Limits the rows that a file of some size may claim: real training data takes bytes per row, and a small file must not
// keep a reader busy for days.
constexpr uint64_t kRowsOfAByte = 1024, kRowsOfAnyFile = 1 << 20;

enum class Repetition : uint8_t { required, optional, repeated };

// One element of the schema as stored.
struct Element {
  std::optional<int64_t> type;
  int64_t length = 0, repetition = 0, children = 0, scale = 0;
  std::string_view name;
  bool is_text = false, is_list = false, is_decimal = false, is_natural = false, is_half = false;
};

void read_logical(Thrift& in, Element& out) {
  in.fields([&](int64_t id, Type type) {
    if (type != Type::record) return false;
    out.is_text |= id == 1 || id == 4 || id == 12;  // text, enumeration, JSON
    out.is_list |= id == 2 || id == 3;
    out.is_half |= id == 15;
    if (id == 5) {
      out.is_decimal = true;
      in.fields([&](int64_t part, Type t) {
        if (part != 1) return false;
        out.scale = in.integer(t);
        return true;
      });
      return true;
    }
    if (id == 10) {
      in.fields([&](int64_t part, Type t) {
        if (part != 2) return false;
        out.is_natural = !in.boolean(t);
        return true;
      });
      return true;
    }
    return false;
  });
}

void read_converted(int64_t converted, Element& out) {
  out.is_text |= converted == 0 || converted == 4 || converted == 19;
  out.is_list |= converted >= 1 && converted <= 3;
  out.is_decimal |= converted == 5;
  out.is_natural |= converted >= 11 && converted <= 14;
}

Element read_element(Thrift& in) {
  Element out;
  in.fields([&](int64_t id, Type type) {
    switch (id) {
      case 1:
        out.type = in.integer(type);
        return true;
      case 2:
        out.length = in.integer(type);
        return true;
      case 3:
        out.repetition = in.integer(type);
        return true;
      case 4:
        out.name = in.text(type);
        return true;
      case 5:
        out.children = in.integer(type);
        return true;
      case 6:
        read_converted(in.integer(type), out);
        return true;
      case 7:
        out.scale = in.integer(type);
        return true;
      case 10:
        if (type != Type::record) return false;
        read_logical(in, out);
        return true;
      default:
        return false;
    }
  });
  if (text::utf8_valid_run(out.name, 0) != out.name.size()) throw user_error("a column's name is no valid UTF-8");
  if (out.repetition < 0 || out.repetition > 2 || out.children < 0)
    throw user_error("column '{}': the schema is damaged", out.name);
  return out;
}

// Builds a tree from the stored schema elements. A list is stored as a group with a repeated group in it, but older
// writers omit one or the other: the format's backward compatibility rules determine which group is the element.
class SchemaReader {
 public:
  SchemaReader(const std::vector<Element>& lines, Footer& out) : lines_(lines), out_(out) {}

  void read() {
    const Element& root = take();
    out_.root = record(root, "", 0, 0, 0);
    if (at_ != lines_.size()) throw user_error("the schema is damaged: lines that belong to no column");
    if (out_.leaves.empty()) throw user_error("the schema has no columns");
  }

 private:
  const Element& take() {
    if (at_ >= lines_.size()) throw user_error("the schema ends too early");
    return lines_[at_++];
  }

  static std::string below(const std::string& path, const Element& line) {
    return path.empty() ? std::string(line.name) : fmt::format("{}.{}", path, line.name);
  }

  Node node(const std::string& above, int definition, int repetition, int depth) {
    const Element& line = take();
    if (line.repetition == ordinal(Repetition::repeated)) {
      Node out = list_node(line, definition, repetition);
      out.children.push_back(body(line, above, definition + 1, repetition + 1, depth));
      return closed(std::move(out));
    }
    return body(line, above, definition + (line.repetition == ordinal(Repetition::optional)), repetition, depth);
  }

  Node list_node(const Element& line, int definition, int repetition) const {
    return {.kind = Node::Kind::list,
            .name = std::string(line.name),
            .present = definition,
            .element = definition + 1,
            .repeats = repetition + 1,
            .first = static_cast<uint32_t>(out_.leaves.size())};
  }

  Node closed(Node node) const {
    node.end = out_.leaves.size();
    if (node.end == node.first) throw user_error("column '{}' has no columns below it", node.name);
    return node;
  }

  // The node of a schema element when present, and of one of its elements when repeated.
  Node body(const Element& line, const std::string& above, int definition, int repetition, int depth) {
    if (above.size() > kLongestName) throw user_error("a column whose name takes more than {} bytes", kLongestName);
    if (depth > kDeepest) throw user_error("column '{}': the schema is nested too deep", line.name);
    if (line.type && line.children == 0) return leaf(line, above, definition, repetition);
    if (line.is_list && line.children == 1 && at_ < lines_.size() &&
        lines_[at_].repetition == ordinal(Repetition::repeated)) {
      const std::string path = below(above, line);
      Node out = list_node(line, definition, repetition);
      const Element& repeated = take();
      const bool is_element = repeated.type || repeated.children != 1 || repeated.name == "array" ||
                              repeated.name == fmt::format("{}_tuple", line.name);
      if (is_element)
        out.children.push_back(body(repeated, path, definition + 1, repetition + 1, depth + 1));
      else
        out.children.push_back(node(below(path, repeated), definition + 1, repetition + 1, depth + 1));
      return closed(std::move(out));
    }
    return record(line, below(above, line), definition, repetition, depth);
  }

  Node record(const Element& line, const std::string& path, int definition, int repetition, int depth) {
    Node out{.kind = Node::Kind::record,
             .name = std::string(line.name),
             .present = definition,
             .first = static_cast<uint32_t>(out_.leaves.size())};
    std::set<std::string> names;
    for (int64_t i = 0; i < line.children; ++i) {
      out.children.push_back(node(path, definition, repetition, depth + 1));
      if (!names.insert(out.children.back().name).second)
        throw user_error("the schema names column '{}' twice", out.children.back().name);
    }
    return closed(std::move(out));
  }

  Node leaf(const Element& line, const std::string& above, int definition, int repetition) {
    if (*line.type < 0 || *line.type > ordinal(Physical::fixed))
      throw user_error("column '{}' has an unknown type", line.name);
    std::string path = below(above, line);
    if (path.size() > kLongestName) throw user_error("a column whose name takes more than {} bytes", kLongestName);
    Leaf leaf{.name = std::move(path),
              .type = static_cast<Physical>(*line.type),
              .definition = definition,
              .repetition = repetition};
    if (leaf.type == Physical::fixed) {
      if (line.length < 1 || line.length > INT32_MAX) throw user_error("column '{}': values of no length", line.name);
      leaf.length = line.length;
    }
    if (line.is_decimal) {
      if (line.scale < 0 || line.scale > 300) throw user_error("column '{}': decimals of no scale", line.name);
      leaf.meaning = Meaning::decimal;
      leaf.scale = line.scale;
    } else if (line.is_text) {
      leaf.meaning = Meaning::text;
    } else if (line.is_natural) {
      leaf.meaning = Meaning::natural;
    } else if (line.is_half && leaf.type == Physical::fixed && leaf.length == 2) {
      leaf.meaning = Meaning::half;
    }
    const uint32_t index = out_.leaves.size();
    if (index == kMostColumns) throw user_error("more than {} columns", kMostColumns);
    out_.leaves.push_back(std::move(leaf));
    return {.kind = Node::Kind::leaf,
            .name = std::string(line.name),
            .present = definition,
            .first = index,
            .end = index + 1};
  }

  const std::vector<Element>& lines_;
  Footer& out_;
  size_t at_ = 0;
};

uint64_t natural(int64_t value) {
  if (value < 0) throw user_error("the footer is damaged: a size below zero");
  return value;
}

// Reads the metadata of one column in one row group.
struct ChunkReader {
  const std::vector<Leaf>& leaves;
  uint64_t end;  // of the pages of the file

  Chunk read(Thrift& in, size_t index) const {
    std::optional<uint64_t> values, size, data, dictionary;
    std::optional<int64_t> type, codec;
    in.fields([&](int64_t id, Type t) {
      if (id == 1) throw user_error("its columns lie in other files, which is not supported");
      if (id == 8) throw user_error("its columns are encrypted, which is not supported");
      if (id != 3 || t != Type::record) return false;
      in.fields([&](int64_t part, Type p) {
        switch (part) {
          case 1:
            type = in.integer(p);
            return true;
          case 4:
            codec = in.integer(p);
            return true;
          case 5:
            values = natural(in.integer(p));
            return true;
          case 7:
            size = natural(in.integer(p));
            return true;
          case 9:
            data = natural(in.integer(p));
            return true;
          case 11:
            dictionary = natural(in.integer(p));
            return true;
          default:
            return false;
        }
      });
      return true;
    });
    const std::string& name = leaves[index].name;
    if (!type || !codec || !values || !size || !data) throw user_error("column '{}': the footer lacks a part", name);
    if (*type != ordinal(leaves[index].type)) throw user_error("column '{}' has another type than in the schema", name);
    // Some writers store 0 where there is no dictionary.
    const uint64_t first = dictionary && *dictionary > 0 && *dictionary < *data ? *dictionary : *data;
    if (first > end || *size > end - first) throw user_error("column '{}' is outside of the file", name);
    return {.first = first, .size = *size, .values = *values, .codec = static_cast<int>(*codec)};
  }
};

RowGroup read_group(Thrift& in, const ChunkReader& chunks) {
  RowGroup out;
  in.fields([&](int64_t id, Type type) {
    if (id == 3) {
      out.rows = natural(in.integer(type));
      return true;
    }
    if (id != 1) return false;
    in.elements(type, [&](Type of) {
      if (of != Type::record || out.columns.size() == chunks.leaves.size())
        throw user_error("a group of rows has other columns than the schema");
      out.columns.push_back(chunks.read(in, out.columns.size()));
    });
    return true;
  });
  if (out.columns.size() != chunks.leaves.size()) throw user_error("a group of rows has other columns than the schema");
  return out;
}

}  // namespace

Footer read_footer(std::string_view file) {
  if (file.size() < kMagic.size() + kTail || !(file.starts_with(kMagic) || file.starts_with(kEncrypted)))
    throw user_error("no Parquet file");
  if (file.ends_with(kEncrypted)) throw user_error("the file is encrypted, which is not supported");
  if (!file.ends_with(kMagic)) throw user_error("the Parquet file ends too early");
  uint32_t length = 0;
  std::memcpy(&length, file.data() + file.size() - kTail, sizeof length);
  if (length > file.size() - kTail - kMagic.size()) throw user_error("the footer is longer than the file");
  const uint64_t begin = file.size() - kTail - length;

  Footer out;
  bool has_schema = false;
  uint64_t said = 0;
  Thrift in(file.substr(begin, length));
  in.fields([&](int64_t id, Type type) {
    if (id == 2) {
      std::vector<Element> lines;
      in.elements(type, [&](Type of) {
        if (of != Type::record) throw user_error("the schema is damaged");
        lines.push_back(read_element(in));
      });
      if (has_schema) throw user_error("the footer has two schemas");
      has_schema = true;
      SchemaReader(lines, out).read();
      return true;
    }
    if (id == 3) {
      said = natural(in.integer(type));
      return true;
    }
    if (id == 4) {
      if (!has_schema) throw user_error("the footer has no schema before its rows");
      const ChunkReader chunks{out.leaves, begin};
      in.elements(type, [&](Type of) {
        if (of != Type::record) throw user_error("the footer's list of rows is damaged");
        out.groups.push_back(read_group(in, chunks));
        if (out.groups.back().rows > UINT64_MAX / 2 - out.rows) throw user_error("the footer is damaged: its rows");
        out.rows += out.groups.back().rows;
      });
      return true;
    }
    return false;
  });
  if (!has_schema) throw user_error("the footer has no schema");
  if (said != out.rows) throw user_error("the footer has {} rows, its groups have {}", said, out.rows);
  if (out.rows > kRowsOfAnyFile && (out.rows - kRowsOfAnyFile) / kRowsOfAByte > file.size())
    throw user_error("{} rows in {} bytes exceed the limits of training data", out.rows, file.size());
  return out;
}

}  // namespace lumen::model::data::parquet
