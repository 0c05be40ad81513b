#include <utility>

#include <amalgam/rpc/detail/call.hpp>
#include <amalgam/rpc/extension/encoded_call.hpp>
#include <amalgam/rpc/extension/inside.hpp>

namespace amalgam {

namespace detail {
/// Values, as archives write them.
struct encoded_values {
    std::vector<std::byte> bytes;
};
}  // namespace detail

template <>
struct codec<detail::encoded_values> {
    using for_library_type = void;
    static constexpr std::size_t min_bytes = 0;

    static void save(archive_writer& to, const detail::encoded_values& values) {
        to.raw(values.bytes.data(), values.bytes.size());
    }
    static void load(archive_reader& from, detail::encoded_values& values) {
        const const_bytes all = from.raw(from.remaining());
        values.bytes.assign(all.begin(), all.end());
    }
};

}  // namespace amalgam

namespace amalgam::detail {

std::vector<std::byte> call_encoded(engine_core& core, const peer& there, std::string_view name,
                                    std::string signature, const_bytes arguments) {
    call_target target;
    target.core = &core;
    target.what = &intern(core, name, std::move(signature));
    target.to = there;
    target.as = encoding::native;
    blocking_call<encoded_values> call(target);
    call.write(encoded_values{{arguments.begin(), arguments.end()}});
    return call.run().bytes;
}

}  // namespace amalgam::detail
