//go:build ignore

// Writes geese.csv and fixes.csv: made-up birds and their made-up positions.
// The same bytes come out of every run.
package main

import (
	"bufio"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"time"
)

var species = []struct {
	name             string
	speed, altitude  float64
	fromLat, fromLon float64
	toLat, toLon     float64
}{
	{"Greylag goose", 62, 320, 37.1, -6.4, 59.4, 14.9},
	{"Barnacle goose", 70, 410, 54.9, 8.7, 69.1, 53.2},
	{"Brent goose", 74, 280, 47.6, -2.8, 75.2, 96.8},
	{"Pink-footed goose", 66, 390, 51.3, 3.2, 78.2, 15.6},
}

var names = []string{"Akka", "Bodil", "Caja", "Dagny", "Embla", "Freya", "Gro", "Hedda", "Idun", "Jorunn", "Kaisa", "Liv",
	"Maren", "Nanna", "Oda", "Petra", "Ragna", "Siri", "Tuva", "Unni", "Vigdis", "Ylva", "Asta", "Oline"}

const fixesPerBird = 150

func main() {
	log.SetFlags(0)
	r := rand.New(rand.NewPCG(7, 1909))
	geese, fixes := create("geese.csv"), create("fixes.csv")
	geese.row("tag,name,species,ringed,mass_g\n")
	fixes.row("tag,at,lat,lon,altitude_m,speed_kmh\n")
	for i, name := range names {
		s := species[i%len(species)]
		tag := fmt.Sprintf("SK%03d", 101+7*i)
		ringed := time.Date(2019+i%5, time.Month(5+i%3), 1+i, 0, 0, 0, 0, time.UTC)
		geese.row("%s,%s,%s,%s,%d\n", tag, name, s.name, ringed.Format(time.DateOnly), 1400+r.IntN(2000))
		at := time.Date(2024, 3, 8+r.IntN(12), r.IntN(24), 0, 0, 0, time.UTC)
		for n := range fixesPerBird {
			// The track is an arc, flown in hops: fast by day, resting at times.
			p := float64(n) / (fixesPerBird - 1)
			lat := s.fromLat + (s.toLat-s.fromLat)*p + 1.8*math.Sin(p*math.Pi) + r.NormFloat64()*0.05
			lon := s.fromLon + (s.toLon-s.fromLon)*p + r.NormFloat64()*0.08
			speed, altitude := math.Max(0, s.speed+r.NormFloat64()*9), math.Max(5, s.altitude+r.NormFloat64()*110)
			if r.IntN(4) == 0 {
				speed, altitude = r.Float64()*3, 1+r.Float64()*4
			}
			// A tag in poor light sends no altitude.
			height := fmt.Sprintf("%.0f", altitude)
			if r.IntN(40) == 0 {
				height = ""
			}
			fixes.row("%s,%s,%.4f,%.4f,%s,%.1f\n", tag, at.Format(time.DateTime), lat, lon, height, speed)
			at = at.Add(time.Duration(50+r.IntN(140)) * time.Minute)
		}
	}
	geese.close()
	fixes.close()
}

type output struct {
	f *os.File
	w *bufio.Writer
}

func create(name string) *output {
	f, err := os.Create(name)
	if err != nil {
		log.Fatal(err)
	}
	return &output{f, bufio.NewWriter(f)}
}

func (o *output) row(format string, args ...any) { fmt.Fprintf(o.w, format, args...) }

func (o *output) close() {
	if err := o.w.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := o.f.Close(); err != nil {
		log.Fatal(err)
	}
}
