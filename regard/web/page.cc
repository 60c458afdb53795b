#include "regard/web/page.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "regard/web/page_template.h"
#include "regard/web/payload.h"

namespace regard::web {
namespace {

std::string assemble(const std::vector<const lens::Report*>& reports) {
  const std::size_t room = kPageLimit - kPageBeforeData.size() - kPageAfterData.size() - 1000;
  nlohmann::json texts = nlohmann::json::array();
  std::string blocks;
  for (const lens::Report* report : reports) {
    if (report->tokens.empty() || report->grid.empty()) {
      throw std::invalid_argument("a page needs a report with tokens and heads; this one has " +
                                  std::to_string(report->tokens.size()) + " tokens and " +
                                  std::to_string(report->grid.size()) + " heads");
    }
    Payload part = payload(*report, static_cast<int>(texts.size()), room / reports.size());
    texts.push_back(std::move(part.text));
    blocks += part.blocks;
  }
  std::string out(kPageBeforeData);
  out += data_block("report", "application/json",
                    script_json({{"program", REGARD_VERSION}, {"texts", std::move(texts)}}));
  out += blocks;
  out += kPageAfterData;
  return out;
}

}  // namespace

std::string page(const lens::Report& report) {
  return assemble({&report});
}

std::string page(const lens::Report& first, const lens::Report& second) {
  return assemble({&first, &second});
}

}  // namespace regard::web
