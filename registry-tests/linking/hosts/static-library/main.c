#include <stddef.h>
#include <stdio.h>

ptrdiff_t family_of(const char *architecture, char *name, size_t capacity);

int main(void) {
    const char *architectures[] = {"Mine", "beta", "alpha"};
    for (size_t i = 0; i < 3; i++) {
        char name[16] = "";
        ptrdiff_t length = family_of(architectures[i], name, sizeof name);
        printf("%s %d %s\n", architectures[i], (int)length, name);
    }
    return 0;
}
