#pragma once

#include <memory>

namespace ff {
using std::make_unique;
}
