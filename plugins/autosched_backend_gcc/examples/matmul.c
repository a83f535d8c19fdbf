// C = A * B, blocked.
// knob TILE_I: 8 16 32 64
// knob TILE_J: 8 16 32 64 128
// knob TILE_K: 8 16 32 64 128
// flops: 8192000
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 160 };
static float a[N][N], b[N][N], c[N][N];

static int min(int x, int y) { return x < y ? x : y; }

static void multiply(void) {
    memset(c, 0, sizeof c);
    for (int i0 = 0; i0 < N; i0 += TILE_I)
        for (int k0 = 0; k0 < N; k0 += TILE_K)
            for (int j0 = 0; j0 < N; j0 += TILE_J)
                for (int i = i0; i < min(i0 + TILE_I, N); i++)
                    for (int k = k0; k < min(k0 + TILE_K, N); k++)
                        for (int j = j0; j < min(j0 + TILE_J, N); j++)
                            c[i][j] += a[i][k] * b[k][j];
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

int main(int argc, char **argv) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (i * 7 + j * 3) % 11 - 5;
            b[i][j] = (i * 5 + j * 2) % 13 - 6;
        }
    multiply();  // warms caches
    for (int repeat = argc > 1 ? atoi(argv[1]) : 1; repeat > 0; repeat--) {
        double began_at = now();
        multiply();
        printf("%.9f\n", now() - began_at);
    }
    printf("output %g %g %g %g\n", c[0][0], c[3][N - 1], c[N / 2][7], c[N - 1][N - 1]);
}
