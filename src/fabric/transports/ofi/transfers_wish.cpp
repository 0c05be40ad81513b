#include "fabric/transports/ofi/transfers_wish.hpp"

#include <cstdlib>
#include <span>

#include <fmt/format.h>
#include <rdma/fi_domain.h>

namespace amalgam::detail {
namespace {

struct setting {
    const char* name;
    const char* value;

    bool is_made() const noexcept {
        const char* is = std::getenv(name);
        return is != nullptr && std::string_view(is) == value;
    }
};

// A closed registration stays in verbs' cache, and open to peers, with all rights.
constexpr setting verbs_needs[] = {{"FI_MR_CACHE_MAX_COUNT", "0"}};
// As fi_cxi(7) says of memory that must not be reached once its registration is closed.
constexpr setting cxi_needs[] = {{"FI_CXI_MR_MATCH_EVENTS", "1"}, {"FI_CXI_OPTIMIZED_MRS", "0"}};

/// What a provider whose device checks keys needs; nothing if software has a part in it.
std::span<const setting> needs_of(std::string_view provider) noexcept {
    if (provider == "verbs" || provider == "verbs;ofi_rxm") return verbs_needs;
    if (provider == "cxi") return cxi_needs;
    return {};
}

bool never_answers(std::string_view provider) noexcept {
    return provider == "udp" || provider == "udp;ofi_rxd";
}

void choose_by_provider(ofi_transfers_wish& wish, std::string_view provider) {
    if (never_answers(provider)) {
        wish.why_packets = "as libfabric's udp never answers a transfer whose key it refuses";
        return;
    }
    const auto needs = needs_of(provider);
    if (needs.empty()) {
        wish.why_packets =
            "as software has a part in this provider's, and checks a key once before all of its "
            "bytes, so that no region could close while they come";
        return;
    }
    for (const setting& each : needs)
        if (!each.is_made()) {
            wish.why_packets = fmt::format(
                "as libfabric's \"{}\" lets peers reach closed regions unless {}={} is set",
                provider, each.name, each.value);
            return;
        }
    wish.one_sided = wish.by_device = true;
}

/// Empty: nothing wrong.
std::string read_modes(ofi_transfers_wish& wish, std::string_view list) {
    while (!list.empty()) {
        const std::size_t comma = std::min(list.find(','), list.size());
        const std::string_view one = list.substr(0, comma);
        list.remove_prefix(std::min(comma + 1, list.size()));
        if (one == "basic")
            wish.old_basic = true;
        else if (one == "local")
            wish.local = true;
        else if (one == "virt_addr")
            wish.modes |= FI_MR_VIRT_ADDR;
        else if (one == "prov_key")
            wish.modes |= FI_MR_PROV_KEY;
        else
            return fmt::format(
                "mr_mode has \"{}\", but knows basic, local, virt_addr and prov_key, with commas",
                one);
    }
    return {};
}

}  // namespace

bool checks_keys_in_device(std::string_view provider) noexcept {
    return !needs_of(provider).empty();
}

result<ofi_transfers_wish> transfers_wish(const uri& where, bool sealed) {
    ofi_transfers_wish wish;
    for (const uri_option& each : where.options)
        if (each.key != "one_sided" && each.key != "mr_mode" && each.key != "insecure" &&
            each.key != "credentials")
            return failure{{errc::invalid},
                           fmt::format("unknown option \"{}\": ofi has one_sided", each.key)};
    if (const auto modes = where.option("mr_mode"))
        if (std::string flaw = read_modes(wish, *modes); !flaw.empty())
            return failure{{errc::invalid}, std::move(flaw)};
    const auto asked = where.option("one_sided");
    if (!asked) {
        choose_by_provider(wish, where.protocol);
        if (sealed && wish.one_sided) {
            wish.one_sided = wish.by_device = false;
            wish.why_packets =
                "as the device would not encrypt them; trusted_wire=yes says that it need not";
        }
    } else if (*asked == "any" && sealed) {
        return failure{
            {errc::invalid},
            "one_sided=any would send puts and gets unencrypted, expected trusted_wire=yes "
            "beside it if nobody else can read and write the wire, or no such option"};
    } else if (*asked == "any") {
        choose_by_provider(wish, where.protocol);
        wish.one_sided = wish.by_anybody = !never_answers(where.protocol);
        wish.on_host = false;
    } else if (*asked == "host") {
        wish.on_host = true;
    } else if (*asked == "no") {
        wish.why_packets = "as the URI asks";
    } else {
        return failure{{errc::invalid},
                       fmt::format("one_sided is \"{}\", but must be any, host or no", *asked)};
    }
    return wish;
}

}  // namespace amalgam::detail
