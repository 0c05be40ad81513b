#include "fabric/transports/ucx/library.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <fmt/format.h>
#include <ucs/debug/log_def.h>
#include <uct/api/uct.h>
#include <unistd.h>

#include <amalgam/core/limited_log.hpp>

#include "fabric/limits.hpp"

namespace amalgam::detail {
namespace {

constexpr const char* tcp_segment = "68000";    // Bytes: limits::packet_bytes, plus overhead.
constexpr const char* memory_segment = "8256";  // Bytes: UCX's default.
constexpr std::size_t unsplit_in_memory = 8000;

void add_resources(uct_component_h component, const uct_md_resource_desc_t& domain,
                   std::vector<ucx_resource>& all) {
    uct_md_config_t* config = nullptr;
    if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
    uct_md_h opened = nullptr;
    const ucs_status_t how = uct_md_open(component, domain.md_name, config, &opened);
    uct_config_release(config);
    if (how != UCS_OK) return;
    uct_tl_resource_desc_t* list = nullptr;
    unsigned count = 0;
    if (uct_md_query_tl_resources(opened, &list, &count) == UCS_OK) {
        for (unsigned i = 0; i < count; ++i)
            if (why_not_usable(list[i].tl_name).empty())
                all.push_back({list[i].tl_name, list[i].dev_name});
        uct_release_tl_resource_list(list);
    }
    uct_md_close(opened);
}

bool begins_with(std::string_view text, std::string_view head) {
    return text.substr(0, head.size()) == head;
}

bool is_shared_memory(std::string_view transport) {
    return transport == "shm" || transport == "sm" || transport == "posix" || transport == "sysv" ||
           transport == "xpmem";
}

[[noreturn]] void fail(std::string_view doing, ucs_status_t what) {
    throw error(from_ucx(what, errc::unsupported),
                fmt::format("UCX cannot {}: {}", doing, ucs_status_string(what)));
}

struct config_release {
    void operator()(ucp_config_t* one) const noexcept { ucp_config_release(one); }
};

/// The name of a UCX tcp setting. Before 1.17, such settings have no transport prefix.
std::string of_tcp(const char* setting) {
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version(&major, &minor, &release);
    const bool says_whose = major > 1 || minor >= 17;
    return std::string(says_whose ? "TCP_" : "") + setting;
}

// Of the last failed system call that UCX told of in this thread. Its status for shared memory does
// not say whether memory or descriptors are what it lacked.
thread_local int last_errno = 0;
thread_local std::uint64_t errors = 0;

bool lacks_memory(int error_number) noexcept {
    return error_number == ENOMEM || error_number == EMFILE || error_number == ENFILE;
}

/// Whether the environment says where or what UCX should write; else it goes to our log.
bool speaks_for_itself() {
    static const bool does =
        std::getenv("UCX_LOG_FILE") != nullptr || std::getenv("UCX_LOG_LEVEL") != nullptr;
    return does;
}

/// Receives a log line that UCX would print on standard output.
ucs_log_func_rc_t take_line(const char*, unsigned, const char*, ucs_log_level_t level,
                            const ucs_log_component_config_t*, const char* format,
                            va_list values) noexcept {
    if (level <= UCS_LOG_LEVEL_ERROR) {
        ++errors;
        if (std::strstr(format, "%m") != nullptr) last_errno = errno;
    }
    if (speaks_for_itself()) return UCS_LOG_FUNC_RC_CONTINUE;
    if (level > UCS_LOG_LEVEL_INFO) return UCS_LOG_FUNC_RC_STOP;
    char line[512];
    std::vsnprintf(line, sizeof line, format, values);
    const log_level ours = level <= UCS_LOG_LEVEL_ERROR  ? log_level::error
                           : level == UCS_LOG_LEVEL_WARN ? log_level::warn
                                                         : log_level::info;
    limited_log(ours, "ucx", "message from UCX", {{"line", static_cast<const char*>(line)}});
    return UCS_LOG_FUNC_RC_STOP;
}

/// Listens to UCX's log.
void take_lines_once() {
    static const bool taken = [] {
        (void)speaks_for_itself();
        ucs_log_push_handler(&take_line);
        return true;
    }();
    (void)taken;
}

// One word, as a lock may be held at a fork: process id above, number of uses below.
std::atomic<std::uint64_t> uses{0};

std::uint64_t no_uses() noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(::getpid())} << 32;
}

bool is_mine(std::uint64_t now) noexcept {
    return now >> 32 == no_uses() >> 32;
}

}  // namespace

ucx_use::ucx_use() {
    std::uint64_t before = uses;
    std::uint64_t after = 0;
    do {
        const bool has_any = static_cast<std::uint32_t>(before) != 0;
        if (has_any && !is_mine(before))
            throw error(errc::unsupported,
                        "UCX was in use when this process was forked and does not work in the "
                        "child; fork before opening a ucx port, or after closing all");
        after = (has_any ? before : no_uses()) + 1;
    } while (!uses.compare_exchange_weak(before, after));
}

ucx_use::~ucx_use() {
    if (is_mine(uses)) --uses;
}

std::string_view why_not_usable(std::string_view protocol) noexcept {
    if (protocol == "self") return "does not tell of lost peers";
    if (protocol == "cma" || protocol == "knem") return "carries no messages";
    return {};
}

std::uint64_t ucx_errors() noexcept {
    return errors;
}

std::vector<ucx_resource> ucx_resources() {
    take_lines_once();
    std::vector<ucx_resource> all;
    uct_component_h* components = nullptr;
    unsigned count = 0;
    if (uct_query_components(&components, &count) != UCS_OK) return all;
    for (unsigned i = 0; i < count; ++i) {
        uct_component_attr_t attributes{};
        attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
        if (uct_component_query(components[i], &attributes) != UCS_OK) continue;
        std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
        attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
        attributes.md_resources = domains.data();
        if (domains.empty() || uct_component_query(components[i], &attributes) != UCS_OK) continue;
        for (const auto& domain : domains)
            add_resources(components[i], domain, all);
    }
    uct_release_component_list(components);
    return all;
}

std::string transports_of(const std::vector<ucx_resource>& all) {
    std::vector<std::string> names;
    for (const ucx_resource& one : all)
        names.push_back(one.transport);
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return fmt::format("{}", fmt::join(names, ", "));
}

bool serves(const std::vector<ucx_resource>& all, std::string_view protocol) {
    return std::any_of(all.begin(), all.end(), [&](const ucx_resource& one) {
        if (protocol == "all") return true;
        if (protocol == "shm" || protocol == "sm") return is_shared_memory(one.transport);
        // "rc" stands for rc_verbs and rc_mlx5, and so on.
        return one.transport == protocol || begins_with(one.transport, std::string(protocol) + "_");
    });
}

bool uses_shared_memory(std::string_view protocol) {
    return protocol == "all" || is_shared_memory(protocol);
}

bool stays_on_host(std::string_view protocol) {
    return is_shared_memory(protocol);
}

std::size_t unsplit_bytes(std::string_view protocol) {
    if (protocol == "tcp") return limits::packet_bytes;
    return stays_on_host(protocol) ? unsplit_in_memory : 1000;
}

status from_ucx(ucs_status_t what, errc otherwise) noexcept {
    errc code = otherwise;
    switch (what) {
        case UCS_OK:
            code = errc::ok;
            break;
        case UCS_ERR_NO_MEMORY:
            code = errc::no_memory;
            break;
        case UCS_ERR_SHMEM_SEGMENT:
            if (lacks_memory(last_errno)) code = errc::no_memory;
            break;
        case UCS_ERR_CANCELED:
            code = errc::canceled;
            break;
        case UCS_ERR_UNREACHABLE:
        case UCS_ERR_REJECTED:
            code = errc::unreachable;
            break;
        case UCS_ERR_CONNECTION_RESET:
        case UCS_ERR_NOT_CONNECTED:
        case UCS_ERR_ENDPOINT_TIMEOUT:
        case UCS_ERR_TIMED_OUT:
            code = errc::disconnected;
            break;
        default:
            break;
    }
    return {code, what};
}

ucx_worker::ucx_worker(const std::string& protocol, const std::string& device, bool ipv6) {
    take_lines_once();
    ucp_config_t* raw = nullptr;
    if (ucs_status_t how = ucp_config_read(nullptr, nullptr, &raw); how != UCS_OK)
        fail("read its configuration", how);
    const std::unique_ptr<ucp_config_t, config_release> config(raw);
    const auto set = [&](const std::string& key, const std::string& value) {
        if (ucs_status_t how = ucp_config_modify(config.get(), key.c_str(), value.c_str());
            how != UCS_OK)
            fail(fmt::format("set {} to {}", key, value), how);
    };
    set("TLS", protocol);
    if (!device.empty()) set("NET_DEVICES", device);
    // Makes shared memory report lost peers too.
    if (uses_shared_memory(protocol)) {
        set("MM_ERROR_HANDLING", "y");
        set("MM_SEG_SIZE", memory_segment);
    }
    // Else a queue that got stuck looks empty while there is no endpoint. With other transports
    // that would cost system calls.
    if (stays_on_host(protocol)) set("ADAPTIVE_PROGRESS", "n");
    if (protocol == "tcp" || protocol == "all") {
        if (ipv6) set(of_tcp("AF_PRIO"), "inet6,inet");
        // UCX aborts if a peer dies while its tcp borrows our memory. Segments that hold a packet
        // with UCX's headers make copying cheaper than that was.
        set("ZCOPY_THRESH", "inf");
        set(of_tcp("TX_SEG_SIZE"), tcp_segment);
        set(of_tcp("RX_SEG_SIZE"), tcp_segment);
        // Connecting does not block; a host that does not answer three attempts, in about 7 s, is
        // considered absent.
        set(of_tcp("CONN_NB"), "y");
        set(of_tcp("SYN_CNT"), "2");
        set(of_tcp("TX_MAX_BUFS"), "-1");  // Unchanged: UCX overwrites it with SYN_CNT.
    }

    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    params.name = "amalgam";
    if (ucs_status_t how = ucp_init(&params, config.get(), &context_); how != UCS_OK)
        fail(fmt::format("open \"{}\"", protocol), how);

    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    ucs_status_t how = ucp_worker_create(context_, &worker, &worker_);
    if (how == UCS_OK) how = ucp_worker_get_efd(worker_, &event_fd_);
    if (how == UCS_OK) return;
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
    fail(fmt::format("create a worker for \"{}\"", protocol), how);
}

std::vector<std::byte> ucx_worker::name() const {
    ucp_address_t* name = nullptr;
    std::size_t bytes = 0;
    if (ucs_status_t how = ucp_worker_get_address(worker_, &name, &bytes); how != UCS_OK)
        fail("get its worker address", how);
    const auto* first = reinterpret_cast<const std::byte*>(name);
    std::vector<std::byte> copy(first, first + bytes);
    ucp_worker_release_address(worker_, name);
    return copy;
}

ucx_worker::~ucx_worker() {
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
}

}  // namespace amalgam::detail
