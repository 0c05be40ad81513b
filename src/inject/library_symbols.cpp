#include "inject/library_symbols.hpp"

#include <amalgam/inject/image.h>

// By the names that compilers give them, as images have them.
#define AMALGAM_LIBRARY_SYMBOLS(WITH)                       \
    WITH(_ZN7amalgam6detail9view_room4takeEmm)              \
    WITH(_ZN7amalgam6detail9give_backEPNS0_12buffer_blockE) \
    WITH(_ZN7amalgam6detail14throw_too_manyEm)

#define AMALGAM_DECLARE(NAME) extern "C" void NAME();
AMALGAM_LIBRARY_SYMBOLS(AMALGAM_DECLARE)
#undef AMALGAM_DECLARE

namespace amalgam::detail {

void* library_symbol(std::string_view name) {
    if (name == "amalgam_inject_result") return reinterpret_cast<void*>(&amalgam_inject_result);
    if (name == "amalgam_inject_onward") return reinterpret_cast<void*>(&amalgam_inject_onward);
    if (name == "amalgam_inject_payload_size")
        return reinterpret_cast<void*>(&amalgam_inject_payload_size);
#define AMALGAM_FIND(NAME) \
    if (name == #NAME) return reinterpret_cast<void*>(&NAME);
    AMALGAM_LIBRARY_SYMBOLS(AMALGAM_FIND)
#undef AMALGAM_FIND
    return nullptr;
}

}  // namespace amalgam::detail
