#include <dlfcn.h>

#include <amalgam/core/detail/pinned_library.hpp>

namespace amalgam::detail {

void pin_library() noexcept {
    static const bool pinned = [] {
        Dl_info here{};
        if (::dladdr(reinterpret_cast<void*>(&pin_library), &here) == 0) return false;
        if (here.dli_fname == nullptr || *here.dli_fname == '\0') return false;
        // dlclose() drops the reference again; the NODELETE mark stays.
        void* const self = ::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
        if (self != nullptr) ::dlclose(self);
        return self != nullptr;
    }();
    static_cast<void>(pinned);
}

}  // namespace amalgam::detail
