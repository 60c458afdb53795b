// The page without its data, made from page/ when the library is built (embed.cmake).
#pragma once

#include <string_view>

namespace regard::web {

extern const std::string_view kPageBeforeData;
extern const std::string_view kPageAfterData;

}  // namespace regard::web
