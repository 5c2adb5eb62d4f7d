// The metadata of a Parquet file: its columns as a tree, and the offsets of their pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::model::data::parquet {

enum class Physical : uint8_t { boolean, int32, int64, int96, float32, float64, bytes, fixed };
enum class Meaning : uint8_t { plain, text, natural, decimal, half };

// A column that holds values.
struct Leaf {
  std::string name;  // full path: messages.list.element.role
  Physical type = Physical::boolean;
  Meaning meaning = Meaning::plain;
  uint32_t length = 0;                 // of Physical::fixed
  int scale = 0;                       // of decimals
  int definition = 0, repetition = 0;  // the highest levels
};

struct Node {
  enum class Kind : uint8_t { leaf, record, list } kind = Kind::leaf;
  std::string name;
  int present = 0;              // the definition level at and above which it is not null
  int element = 0;              // lists: the level at and above which it is not empty
  int repeats = 0;              // lists: the repetition level of all elements after the first
  uint32_t first = 0, end = 0;  // leaves below it, end exclusive
  std::vector<Node> children = {};
};

struct Chunk {
  uint64_t first = 0, size = 0;  // bytes of the file
  uint64_t values = 0;           // including nulls
  int codec = 0;
};

struct RowGroup {
  uint64_t rows = 0;
  std::vector<Chunk> columns;  // in the order of the leaves
};

struct Footer {
  Node root;
  std::vector<Leaf> leaves;
  std::vector<RowGroup> groups;
  uint64_t rows = 0;
};

Footer read_footer(std::string_view file);

}  // namespace lumen::model::data::parquet
