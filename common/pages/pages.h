// The data of docs/interactive's pages, which `layouts` prints.
#pragma once

#include "common/harness/json.h"

namespace pages {

using Json = fa::Json;  // numbers in fp32, with as few digits as tell them apart

Json fragments();
Json descriptor();
Json banks();
Json softmax();

}  // namespace pages
