#pragma once

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <amalgam/fabric/credentials.hpp>

#include "fabric/trust/key_folders/lab_testing.hpp"

namespace amalgam {

inline credential_parts files_in(const std::string& folder) {
    return {.certificate = folder + "/certificate.pem",
            .key = folder + "/key.pem",
            .authority = folder + "/authority.pem",
            .revoked = folder + "/revoked.pem"};
}

/// A lab, and a folder of credentials that it certified.
class credentials_folder : public testing::Test {
protected:
    /// Why the folder is refused now.
    void expect_refused(errc code, const std::string& part) {
        const auto got = credentials::try_from_folder(node);
        EXPECT_EQ(got.code(), code) << part;
        EXPECT_NE(got.sentence().find(part), std::string::npos) << got.sentence();
        EXPECT_EQ(got.sentence().find('\n'), std::string::npos) << got.sentence();
    }
    void write(const std::string& file, const std::string& text) {
        std::ofstream(node + "/" + file) << text;
    }

    const lab_folder here;
    const std::string node = here.add("node", {.groups = {"compute"}});
};

}  // namespace amalgam
