#pragma once

#include <cstddef>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include <amalgam/inject/detail/growing_bytes.hpp>
#include <amalgam/inject/image.h>
#include <amalgam/rpc/archive.hpp>
#include <amalgam/rpc/codec_std.hpp>

/// For the file of an image: makes a C++ function one that travels, with arguments and a result of
/// any type that procedures may have (see rpc).
///
///     std::size_t count(store& where, const std::string& word) { … }
///     AMALGAM_INJECT(count)
///
/// Its first parameter, a reference, is what the target gives all injected functions
/// (injection_options::target_args); the others come from who calls it:
/// `injector::add<std::size_t(std::string)>(image)`. One such line in a file, and the image's name
/// is the function's. It is built with the headers of the release that its targets have.
#define AMALGAM_INJECT(NAME)                                                       \
    AMALGAM_INJECTED(NAME)                                                         \
    void NAME##_main(void* payload, std::size_t payload_size, void* target_args) { \
        ::amalgam::detail::run_injected(NAME, payload, payload_size, target_args); \
    }

namespace amalgam::detail {

template <typename R, typename Target, typename... A>
void run_injected(R (*function)(Target&, A...), void* payload, std::size_t bytes, void* target) {
    archive_reader read({static_cast<const std::byte*>(payload), bytes});
    std::tuple<std::remove_cvref_t<A>...> arguments;
    std::apply([&](auto&... each) { read(each...); }, arguments);
    if (!read.ok() || read.remaining() != 0)
        throw std::invalid_argument("its arguments are not those that it was built for");
    const auto run = [&](auto&... each) -> R {
        return function(*static_cast<Target*>(target), std::forward<A>(each)...);
    };
    if constexpr (std::is_void_v<R>) {
        std::apply(run, arguments);
    } else {
        growing_bytes into;
        basic_archive_writer<growing_bytes> write(into);
        write(std::apply(run, arguments));
        amalgam_inject_result(into.data(), into.size());
    }
}

}  // namespace amalgam::detail
