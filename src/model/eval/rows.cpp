#include "model/eval/rows.h"

#include "base/error.h"
#include "model/data/rows/rows.h"

namespace lumen::model::eval {

std::vector<nlohmann::ordered_json> read_rows(const std::filesystem::path& file) {
  std::vector<nlohmann::ordered_json> rows;
  const auto reader = data::open_rows(file);
  for (data::DataRow row; reader->next(&row);) {
    parse_row(&row);
    if (!row.fault.empty())
      throw user_error("{}:{}: {}", file.string(), row.line, row.detail.empty() ? row.fault : row.detail);
    rows.push_back(std::move(row.value));
  }
  return rows;
}

}  // namespace lumen::model::eval
