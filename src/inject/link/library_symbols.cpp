#include "inject/link/library_symbols.hpp"

#include <amalgam/inject/detail/services.hpp>
#include <amalgam/inject/image.h>

#define AMALGAM_SERVICES(WITH)        \
    WITH(amalgam_inject_result)       \
    WITH(amalgam_inject_onward)       \
    WITH(amalgam_inject_call)         \
    WITH(amalgam_inject_attached)     \
    WITH(amalgam_inject_pull)         \
    WITH(amalgam_inject_push)         \
    WITH(amalgam_inject_payload_size) \
    WITH(amalgam_inject_call_typed)   \
    WITH(amalgam_inject_transfer)

// By mangled names, as in images. With libc++ other names would be right, but nothing is linked
// there: see linked_image.
#ifdef _LIBCPP_VERSION
#define AMALGAM_LIBRARY_SYMBOLS(WITH)
#else
#define AMALGAM_LIBRARY_SYMBOLS(WITH)                       \
    WITH(_ZN7amalgam6detail9view_room4takeEmm)              \
    WITH(_ZN7amalgam6detail9give_backEPNS0_12buffer_blockE) \
    WITH(_ZN7amalgam6detail14throw_too_manyEm)              \
    WITH(_ZN7amalgam6detail10ratio_nameB5cxx11Ell)          \
    WITH(_ZN7amalgam6detail11number_nameB5cxx11Ecm)         \
    WITH(_ZN7amalgam6detail14tidy_type_nameB5cxx11ESt17basic_string_viewIcSt11char_traitsIcEE)
#endif

#define AMALGAM_DECLARE(NAME) extern "C" void NAME();
AMALGAM_LIBRARY_SYMBOLS(AMALGAM_DECLARE)
#undef AMALGAM_DECLARE

namespace amalgam::detail {

void* library_symbol(std::string_view name) {
#define AMALGAM_FIND(NAME) \
    if (name == #NAME) return reinterpret_cast<void*>(&NAME);
    AMALGAM_SERVICES(AMALGAM_FIND)
    AMALGAM_LIBRARY_SYMBOLS(AMALGAM_FIND)
#undef AMALGAM_FIND
    return nullptr;
}

}  // namespace amalgam::detail
